"""`nexus send`: a message from a shell or a script into agents' inboxes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from core.access import OPERATOR_AGENT
from core.cli import EXIT_CODES, NOTHING, OperatorCommand, add_project_root


class Command(OperatorCommand):
    help = (
        "Send a message to one agent, to a role, to whoever has a capability, or to everybody present in the project."
    )
    examples = f"""examples:
  nexus send --to builder --subject "CI is red" --body "See job 4711."
  git log -1 | nexus send --role reviewer --subject "Please review" --body -
  nexus send --everybody --subject "Freeze at noon" --body "Merge before." --json

{EXIT_CODES}
  {NOTHING}  sent, and it reached nobody"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_project_root(parser)
        target = parser.add_mutually_exclusive_group(required=True)
        target.add_argument("--to", metavar="AGENT", help="One agent, present or not.")
        target.add_argument("--role", help="Every agent in this role.")
        target.add_argument("--capability", help="Every agent that has this capability.")
        target.add_argument("--everybody", action="store_true", help="Every agent present in the project.")
        parser.add_argument("--subject", required=True, help="What it is about.")
        parser.add_argument("--body", required=True, help="The text; - reads it from standard input.")
        parser.add_argument("--sender", default=OPERATOR_AGENT, metavar="AGENT", help=f"Who sends. [{OPERATOR_AGENT}]")
        parser.add_argument("--reply-to", metavar="MESSAGE", help="The message_id that this answers.")

    def act(self, options: Mapping[str, Any]) -> int:
        if options["sender"] == OPERATOR_AGENT:
            self.call("agent_register", agent_id=OPERATOR_AGENT, role="operator")  # so that agents can answer
        data = self.call(
            "message_create",
            project_root=options["project_root"],
            from_agent_id=options["sender"],
            subject=options["subject"],
            body=sys.stdin.read() if options["body"] == "-" else options["body"],
            parent_message_id=options["reply_to"],
            target=_target(options),
        )
        if options["json"]:
            self.print_json(data)
        else:
            reached = ", ".join(data["recipients"]) or "nobody"
            self.stdout.write(f"{data['message_id']} reached {reached}.")
            if "warning" in data:
                self.stderr.write(data["warning"])
        return 0 if data["recipients"] else NOTHING


def _target(options: Mapping[str, Any]) -> dict[str, str]:
    for strategy, field, value in (
        ("direct", "agent_id", options["to"]),
        ("role", "role", options["role"]),
        ("capability", "capability", options["capability"]),
    ):
        if value is not None:
            return {"strategy": strategy, field: value}
    return {"strategy": "broadcast"}
