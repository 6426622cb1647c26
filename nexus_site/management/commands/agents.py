"""`nexus agents`: who is on the team, who is there, and whose mail waits. It tells of mail too, so it stands here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination import presence, routing
from coordination.models import Agent, AgentKey
from coordination.services import workspaces
from inbox.monitoring import Inbox, inboxes
from nexus.core.cli import EXIT_CODES, NOTHING, add_page, ago
from nexus.core.clock import iso, now
from nexus.core.operations.errors import invalid
from nexus.core.operations.replies import Data
from nexus.core.verbs import Verb, VerbsCommand, named

AGENT = named("agent", "The agent's id.")


class Command(VerbsCommand):
    help = "List the agents with presence and mail, make them, give them keys. Without a verb it lists them."
    examples = f"""examples:
  nexus agents
  nexus agents create builder --role coder --capability python
  nexus agents --project . --json | jq -r '.agents[] | select(.presence == "present") | .agent_id'

{EXIT_CODES}
  {NOTHING}  no agent is registered"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the agents with their presence and their mail.",
                self.list,
                _add_list,
                ["nexus agents list", "nexus agents list --project . --json"],
                nothing="no agent is registered",
            ),
            Verb(
                "create",
                "Make an agent; its API key is shown this once.",
                self.create,
                _add_profile,
                [
                    "nexus agents create builder --role coder --capability python",
                    "nexus agents create builder --json | jq -r .api_key",
                ],
            ),
            Verb("show", "Show an agent: profile, presence, key, mail.", self.show_agent, AGENT,
                 ["nexus agents show builder"]),
            Verb("update", "Change an agent's role, capabilities or metadata.", self.update, _add_profile,
                 ["nexus agents update builder --role reviewer"]),
            Verb(
                "key",
                "Issue a new API key, shown this once; the one it had dies. Or take it out of and into service.",
                self.key,
                _add_key,
                ["nexus agents key builder", "nexus agents key builder --deactivate"],
            ),
            Verb(
                "delete",
                "Take an agent out of the team: its key dies, its sessions close. Its mail and history stay.",
                self.delete,
                AGENT,
                ["nexus agents delete builder", "nexus agents delete builder --yes --json"],
                asks=True,
            ),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Agents, one a row."""
        root = options["project_root"]
        workspace_id = workspaces.locate(root).workspace_id if root else None
        data = self.call("agent_list", limit=options["limit"], cursor=options["cursor"])
        agents = _described(data["agents"], workspace_id)
        if options["json"]:
            self.print_json({**data, "agents": agents})
        else:
            self.print_table(
                ["agent", "presence", "unread", "in flight", "parked", "last act", "role", "capabilities"],
                [
                    (
                        agent["agent_id"],
                        agent["presence"],
                        agent["unread"],
                        agent["in_flight"],
                        agent["parked"],
                        ago(agent["last_act_at"]),
                        agent["role"],
                        ", ".join(sorted(routing.capability_set(agent["capabilities"]))),
                    )
                    for agent in agents
                ],
            )
            self.tell_more(data)
        return 0 if agents else NOTHING

    def create(self, options: Mapping[str, Any]) -> int:
        """A new agent and its key."""
        return self.show(options, self.call("agent_create", agent_id=options["agent"], **_profile(options)))

    def update(self, options: Mapping[str, Any]) -> int:
        """Another profile."""
        return self.show(options, self.call("agent_update", agent_id=options["agent"], **_profile(options)))

    def show_agent(self, options: Mapping[str, Any]) -> int:
        """All there is to know of one agent."""
        agent = self.call("agent_get", agent_id=options["agent"])
        [data] = _described([agent])
        key = AgentKey.objects.filter(agent_id=agent["agent_id"]).first()
        data["key"] = "none" if key is None else "active" if key.is_active else "deactivated"
        return self.show(options, data)

    def key(self, options: Mapping[str, Any]) -> int:
        """A new key, or the one there is out of and into service."""
        if options["active"] is not None:
            return self.show(
                options, self.call("agent_key_set_active", agent_id=options["agent"], active=options["active"])
            )
        return self.show(options, self.call("agent_key_issue", agent_id=options["agent"]))

    def delete(self, options: Mapping[str, Any]) -> int:
        """Out of the team."""
        self.call("agent_get", agent_id=options["agent"])  # an unknown one is no question
        if not options["yes"] and not self.ask(f"Delete agent {options['agent']!r}?"):
            self.stdout.write("Nothing was changed.")
            return 0
        return self.show(options, self.call("agent_delete", agent_id=options["agent"]))


def _described(rows: Sequence[Data], workspace_id: str | None = None) -> list[dict[str, Any]]:
    """Agents with presence and mail; who was deleted since is left out."""
    moment, names = now(), [row["agent_id"] for row in rows]
    agents = list(Agent.objects.filter(pk__in=names))
    states = {state.agent_id: state for state in presence.states_of(agents, moment, workspace_id=workspace_id)}
    mail = inboxes(moment, names)
    return [_row(row, states[name], mail.get(name, Inbox())) for row in rows if (name := row["agent_id"]) in states]


def _row(agent: Data, state: presence.AgentState, inbox: Inbox) -> dict[str, Any]:
    return {
        **agent,
        "presence": state.presence.value,
        "last_act_at": iso(state.last_act),
        "reached_by_broadcasts": state.reached_by_broadcasts,
        "unread": inbox.unread,
        "in_flight": inbox.in_flight,
        "parked": inbox.parked,
    }


def _add_list(parser: CommandParser) -> None:
    parser.add_argument(
        "--project", dest="project_root", metavar="DIR", help="Tell who is present in this project, not anywhere."
    )
    add_page(parser, what="Agents")


def _add_profile(parser: CommandParser) -> None:
    AGENT(parser)
    parser.add_argument("--role", help="What a role target addresses.")
    parser.add_argument("--capability", action="append", help="What a capability target addresses; repeat for more.")
    parser.add_argument("--metadata", metavar="JSON", help="Anything else that others may see of it.")


def _add_key(parser: CommandParser) -> None:
    AGENT(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--deactivate", dest="active", action="store_false", default=None, help="Take its key out of service."
    )
    what.add_argument("--activate", dest="active", action="store_true", default=None, help="Take it back in.")


def _profile(options: Mapping[str, Any]) -> dict[str, Any]:
    """What was given of a profile. Raises VALIDATION_ERROR for metadata that is no JSON."""
    try:
        metadata = None if options["metadata"] is None else json.loads(options["metadata"])
    except (ValueError, RecursionError):
        raise invalid(
            "--metadata is no JSON; a text goes in quotes of its own: '\"text\"'.", field="metadata"
        ) from None
    return {"role": options["role"], "capabilities": options["capability"], "metadata": metadata}
