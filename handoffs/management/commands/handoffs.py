"""`nexus handoffs`: the work that is offered and who has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from django.db.models import QuerySet

from coordination.routing import in_words
from coordination.services import workspaces
from core.cli import EXIT_CODES, NOTHING, OperatorCommand, ago, positive
from core.clock import now
from handoffs.models import Handoff, HandoffStatus
from handoffs.rows import handoff_row


class Command(OperatorCommand):
    help = "List the handoffs that are open or claimed, oldest first."
    examples = f"""examples:
  nexus handoffs
  nexus handoffs --project-root . --status COMPLETED --limit 10
  nexus handoffs --project-root . --for builder --json

{EXIT_CODES}
  {NOTHING}  none there"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--project-root", help="Only this project's.")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--for", dest="agent", metavar="AGENT", help="What this agent may claim in --project-root.")
        what.add_argument("--status", choices=HandoffStatus.values, help="Those in this state, newest first.")
        parser.add_argument("--limit", type=positive, default=100, help="Handoffs at most. [100]")

    def act(self, options: Mapping[str, Any]) -> int:
        if options["agent"] is not None:
            root, limit = options["project_root"] or ".", options["limit"]
            available = self.call("handoff_list_available", project_root=root, agent_id=options["agent"], limit=limit)
            rows = available["handoffs"]
        else:
            moment = now()
            rows = [
                {**handoff_row(handoff, moment), "project_root": handoff.workspace.root_realpath}
                for handoff in _chosen(options)
            ]
        if options["json"]:
            self.print_json({"handoffs": rows})
        else:
            self.print_table(
                ["handoff", "state", "from", "for", "claimed by", "lease ends", "offered", "project"],
                [
                    (
                        row["handoff_id"],
                        row["status"],
                        row["from_agent_id"],
                        in_words(row["target"]),
                        row.get("claimed_by"),
                        ago(row.get("lease_expires_at")),
                        ago(row["created_at"]),
                        row.get("project_root"),
                    )
                    for row in rows
                ],
            )
        return 0 if rows else NOTHING


def _chosen(options: Mapping[str, Any]) -> QuerySet[Handoff]:
    live = [HandoffStatus.OPEN, HandoffStatus.CLAIMED]
    if options["status"]:
        rows = Handoff.objects.in_state(options["status"], now()).order_by("-created_event_id")
    else:
        rows = Handoff.objects.filter(status__in=live).order_by("created_event_id")
    if options["project_root"]:
        rows = rows.filter(workspace_id=workspaces.locate(options["project_root"]).workspace_id)
    return rows.select_related("workspace")[: options["limit"]]
