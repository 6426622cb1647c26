"""`nexus mute`: let nothing wake an agent for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, OperatorCommand


class Command(OperatorCommand):
    help = "Let nothing wake an agent for a while. Its mail waits."
    examples = f"""examples:
  nexus mute builder 1h      for an hour from now; also 30m, 2d
  nexus mute builder 0       no longer

{EXIT_CODES}"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("agent", metavar="AGENT", help="The agent's id.")
        parser.add_argument("lasting", metavar="TIME", help="1h, 30m or 2d from now, 30d at most; 0 ends it.")

    def act(self, options: Mapping[str, Any]) -> int:
        data = self.call("agent_mute", agent_id=options["agent"], lasting=options["lasting"])
        (self.print_json if options["json"] else self.print_facts)(data)
        return 0
