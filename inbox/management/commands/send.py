"""`nexus send`: a message from a shell or a script into agents' inboxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from coordination.target_options import add_target, target_of
from inbox.receipts import Stages
from nexus.core.cli import EXIT_CODES, NOTHING, OperatorCommand, Parser, add_project_root, one_line, text_of
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError

LONGEST_SUBJECT = 80  # characters, where it is made from the text


class SendParser(Parser):
    """A parser that takes the words of the text before and after the flags."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        return self.parse_intermixed_args(args, namespace)


class Command(OperatorCommand):
    parser_class = SendParser
    help = "Send a message to agents. To one, to a role, to a capability, to a tag, or to all present in a project."
    examples = f"""examples:
  nexus send builder "CI is red: see job 4711."
  git log -1 | nexus send --role reviewer --subject "Please review" -
  nexus send builder "The freeze is at noon." --expect acknowledged --within 600
  nexus send --tag team=core "The release is out."
  nexus send --everybody --subject "Freeze at noon" --body "Merge before." --json

{EXIT_CODES}
  {NOTHING}  sent, and it reached nobody"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_project_root(parser)
        words = "The agent, unless a flag names the target; then the text, of which - is standard input."
        parser.add_argument("words", nargs="*", metavar="AGENT TEXT", help=words)
        add_target(parser, everybody="Every agent present in the project.", required=False)
        parser.add_argument("--subject", help="What it is about. [the first line of the text]")
        parser.add_argument("--body", help="The text, instead of words; - reads it from standard input.")
        parser.add_argument("--sender", default=OPERATOR_AGENT, metavar="AGENT", help=f"Who sends. [{OPERATOR_AGENT}]")
        parser.add_argument("--reply-to", metavar="MESSAGE", help="The message_id that this answers.")
        expected = [stage.value for stage in Stages if stage is not Stages.STORED]
        parser.add_argument("--expect", choices=expected, help="The stage that each recipient is to reach.")
        parser.add_argument("--within", type=int, metavar="SECONDS", help="In how many seconds; else you are told.")

    def act(self, options: Mapping[str, Any]) -> int:
        words = list(options["words"])
        named = any(options[name] for name in ("to", "role", "capability", "tag", "everybody"))
        if words and not named:
            options = {**options, "to": words.pop(0)}
        elif not named:
            raise NexusError(
                Code.CONFIG_ERROR, 'Say who gets it: nexus send builder "text", or --role, --tag, --everybody.'
            )
        if bool(words) == (options["body"] is not None):
            raise NexusError(Code.CONFIG_ERROR, 'Give the text once: nexus send builder "text", or --body.')
        body = text_of(" ".join(words) or options["body"])
        if options["sender"] == OPERATOR_AGENT:
            self.call("agent_register", agent_id=OPERATOR_AGENT, role="operator")  # so that agents can answer
        else:
            self.call("agent_get", agent_id=options["sender"])  # answers to a name that was mistyped would be lost
        data = self.call(
            "message_create",
            project_root=options["project_root"],
            from_agent_id=options["sender"],
            subject=options["subject"] or one_line(next(iter(body.strip().splitlines()), ""), LONGEST_SUBJECT),
            body=body,
            parent_message_id=options["reply_to"],
            target=target_of(options),
            expect=options["expect"],
            within_seconds=options["within"],
        )
        if options["json"]:
            self.print_json(data)
        else:
            reached = ", ".join(data["recipients"]) or "nobody"
            self.stdout.write(f"{data['message_id']} reached {reached}.")
            self.warn(data)
        return 0 if data["recipients"] else NOTHING
