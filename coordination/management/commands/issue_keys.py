"""`nexus issue-keys`: API keys for agents that have none, in one go (docs/explanation/trust.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser
from django.db import DatabaseError

from coordination import selectors
from nexus.core.cli import EXIT_CODES, Group, OperatorCommand
from nexus.core.database import write
from nexus.core.operations.replies import Data
from nexus.core.operations.runner import documented


class Command(OperatorCommand):
    group = Group.CLIENTS
    help = (
        "Issue an API key to every agent that has none, or to those named. Keys there are stay as they are,\n"
        "so that running it again is safe. Each new key is shown this once; only its hash is kept."
    )
    examples = f"""examples:
  nexus issue-keys
  nexus issue-keys builder reviewer --json

{EXIT_CODES}"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("agents", nargs="*", metavar="AGENT", help="Only these agents.")

    def act(self, options: Mapping[str, Any]) -> int:
        try:
            with write():  # all or none, and none twice: a key that is not shown, or replaced at once, is of no use
                keys = self.issue(options["agents"])
        except DatabaseError as error:
            raise documented(error) from None
        if options["json"]:
            self.print_json({"keys": keys})
        elif keys:
            self.print_table(["agent", "key, shown this once"], [(key["agent_id"], key["api_key"]) for key in keys])
        else:
            self.stdout.write("Nobody needed a key.")
        return 0

    def issue(self, agents: Sequence[str]) -> list[Data]:
        """A key for each of these agents, or of all, that has none. Raises NOT_FOUND."""
        for agent_id in agents:
            self.call("agent_get", agent_id=agent_id)
        keyless = selectors.agents_without_key()
        return [self.call("agent_key_issue", agent_id=each) for each in keyless if not agents or each in agents]
