"""`nexus issue-keys`: API keys for agents that have none, in one go (docs/explanation/trust.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from coordination import selectors
from core.cli import EXIT_CODES, Group, OperatorCommand


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
        for agent_id in options["agents"]:
            self.call("agent_get", agent_id=agent_id)  # all are known, or none gets a key
        keyless = selectors.agents_without_key()
        chosen = [agent_id for agent_id in keyless if not options["agents"] or agent_id in options["agents"]]
        keys = [dict(self.call("agent_key_issue", agent_id=agent_id)) for agent_id in chosen]
        if options["json"]:
            self.print_json({"keys": keys})
        elif keys:
            self.print_table(["agent", "key, shown this once"], [(key["agent_id"], key["api_key"]) for key in keys])
        else:
            self.stdout.write("Nobody needed a key.")
        return 0
