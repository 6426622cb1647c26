"""`nexus send`: a message from a shell or a script into agents' inboxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from coordination.target_options import add_target, target_of
from nexus.core.cli import EXIT_CODES, NOTHING, OperatorCommand, add_project_root, text_of
from nexus.core.operations.caller import OPERATOR_AGENT


class Command(OperatorCommand):
    help = "Send a message to agents. To one, to a role, to all with a capability, or to all present in a project."
    examples = f"""examples:
  nexus send --to builder --subject "CI is red" --body "See job 4711."
  git log -1 | nexus send --role reviewer --subject "Please review" --body -
  nexus send --everybody --subject "Freeze at noon" --body "Merge before." --json

{EXIT_CODES}
  {NOTHING}  sent, and it reached nobody"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_project_root(parser)
        add_target(parser, everybody="Every agent present in the project.")
        parser.add_argument("--subject", required=True, help="What it is about.")
        parser.add_argument("--body", required=True, help="The text; - reads it from standard input.")
        parser.add_argument("--sender", default=OPERATOR_AGENT, metavar="AGENT", help=f"Who sends. [{OPERATOR_AGENT}]")
        parser.add_argument("--reply-to", metavar="MESSAGE", help="The message_id that this answers.")

    def act(self, options: Mapping[str, Any]) -> int:
        if options["sender"] == OPERATOR_AGENT:
            self.call("agent_register", agent_id=OPERATOR_AGENT, role="operator")  # so that agents can answer
        else:
            self.call("agent_get", agent_id=options["sender"])  # answers to a name that was mistyped would be lost
        data = self.call(
            "message_create",
            project_root=options["project_root"],
            from_agent_id=options["sender"],
            subject=options["subject"],
            body=text_of(options["body"]),
            parent_message_id=options["reply_to"],
            target=target_of(options),
        )
        if options["json"]:
            self.print_json(data)
        else:
            reached = ", ".join(data["recipients"]) or "nobody"
            self.stdout.write(f"{data['message_id']} reached {reached}.")
            self.warn(data)
        return 0 if data["recipients"] else NOTHING
