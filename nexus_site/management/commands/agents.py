"""`nexus agents`: who is on the team, who is there, and whose mail waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from coordination import presence, routing
from coordination.services import workspaces
from core.cli import EXIT_CODES, NOTHING, OperatorCommand, ago
from core.clock import now
from inbox.monitoring import Inbox, inboxes


class Command(OperatorCommand):
    help = "List the agents with their presence and their mail."
    examples = f"""examples:
  nexus agents
  nexus agents --project-root . --json | jq -r '.agents[] | select(.presence == "present") | .agent_id'

{EXIT_CODES}
  {NOTHING}  no agent is registered"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--project-root", help="Tell who is present in this project, not anywhere.")

    def act(self, options: Mapping[str, Any]) -> int:
        moment = now()
        root = options["project_root"]
        workspace_id = workspaces.locate(root).workspace_id if root else None
        states = {state.agent_id: state for state in presence.agent_states(moment, workspace_id=workspace_id)}
        mail = inboxes(moment)
        agents = []
        for agent in self.call("agent_list")["agents"]:
            inbox = mail.get(agent["agent_id"], Inbox())
            agents.append(
                {
                    **agent,
                    "presence": states[agent["agent_id"]].presence,
                    "unread": inbox.unread,
                    "in_flight": inbox.in_flight,
                    "parked": inbox.parked,
                }
            )
        if options["json"]:
            self.print_json({"agents": agents})
        else:
            self.print_table(
                ["agent", "presence", "unread", "in flight", "parked", "last action", "role", "capabilities"],
                [
                    (
                        agent["agent_id"],
                        agent["presence"],
                        agent["unread"],
                        agent["in_flight"],
                        agent["parked"],
                        ago(agent["last_seen_at"]),
                        agent["role"],
                        ", ".join(sorted(routing.capability_set(agent["capabilities"]))),
                    )
                    for agent in agents
                ],
            )
        return 0 if agents else NOTHING
