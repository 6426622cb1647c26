"""`nexus inbox`: an agent's mail, from a shell or a script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, OperatorCommand, ago, one_line
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.replies import Data


class Command(OperatorCommand):
    help = "Show an agent's pending mail. Only --pull and --ack change anything, as the agent itself would."
    examples = f"""examples:
  nexus inbox builder
  nexus inbox builder --full --parked
  nexus inbox --pull --json | jq -r '.messages[].message_id' | xargs -r nexus inbox --ack
  nexus inbox builder > /dev/null && echo "builder has mail"

{EXIT_CODES}
  {NOTHING}  no mail there"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("agent", nargs="?", default=OPERATOR_AGENT, help=f"Whose inbox. [{OPERATOR_AGENT}]")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--pull", action="store_true", help="Take the mail, leased: --ack it before the lease ends.")
        what.add_argument("--ack", nargs="+", metavar="MESSAGE", help="Settle these messages: they are handled.")
        what.add_argument("--history", action="store_true", help="Show acknowledged mail, newest first.")
        what.add_argument("--parked", action="store_true", help="Show dead letters too.")
        parser.add_argument("--limit", type=int, help="Messages at most, up to 200. [50]")
        parser.add_argument("--full", action="store_true", help="Show the bodies.")

    def act(self, options: Mapping[str, Any]) -> int:
        data = self._operate(options)
        found = data.get("acknowledged", len(data.get("messages", ())))
        if not found and options["agent"] != OPERATOR_AGENT:  # which is there from its first message on
            self.call("agent_get", agent_id=options["agent"])  # a name that was mistyped is no empty inbox
        if options["json"]:
            self.print_json(data)
        elif options["ack"]:
            self.stdout.write(f"{found} acknowledged.")
        elif options["full"]:
            for message in data["messages"]:
                self._print_whole(message)
        else:
            self.print_table(
                ["message", "from", "subject", "state", "sent"],
                [
                    (row["message_id"], row["from_agent_id"], row["subject"], row["status"], ago(row["created_at"]))
                    for row in data["messages"]
                ],
            )
        return 0 if found else NOTHING

    def _operate(self, options: Mapping[str, Any]) -> Data:
        agent_id, limit = options["agent"], options["limit"]
        if options["ack"]:
            for message_id in options["ack"]:
                self.call("message_status", message_id=message_id)  # all are known, or none is settled
            return self.call("inbox_ack", agent_id=agent_id, message_ids=options["ack"])
        if options["pull"]:
            return self.call("inbox_pull", agent_id=agent_id, limit=limit)
        if options["history"]:
            return self.call("inbox_history", agent_id=agent_id, limit=limit)
        return self.call("inbox_peek", agent_id=agent_id, limit=limit, include_parked=options["parked"])

    def _print_whole(self, message: Data) -> None:
        self.stdout.write(one_line(message["subject"], widest=500))
        self.stdout.write(
            f"{message['message_id']} from {one_line(message['from_agent_id'])}, "
            f"{ago(message['created_at'])}, {message['status']}\n"
        )
        for line in message["body"].splitlines():
            self.stdout.write(f"  {one_line(line, widest=10_000) if line else ''}")
        self.stdout.write("")
