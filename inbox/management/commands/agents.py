"""`nexus agents`: who is on the team, who is there, and whose mail waits; the inbox knows both."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser
from django.db import DatabaseError

from coordination import presence, routing, selectors
from coordination.models import Agent, AgentKey
from coordination.services import workspaces
from inbox.monitoring import Inbox, inboxes
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.dispatch import documented
from nexus.core.operations.errors import invalid
from nexus.core.operations.replies import Data
from nexus.core.verbs import Option, Verb, VerbsCommand, time


class Command(VerbsCommand):
    help = "List agents with presence and mail, create them, issue their keys."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the agents with their presence and their mail.",
                self.list,
                _add_project,
                operation="agent_list",
                options=["present", "limit", "cursor"],
                rows="agents",
                columns={
                    "agent": "agent_id",
                    "presence": "presence",
                    "unread": "unread",
                    "handled now": "in_flight",
                    "dead letters": "parked",
                    "last act": time("last_act_at"),
                    "activity": lambda agent: agent.get("activity", {}).get("state", "-"),
                    "role": "role",
                    "capabilities": lambda agent: ", ".join(sorted(routing.capability_set(agent["capabilities"]))),
                },
                examples=[
                    "nexus agents list --project .",
                    "nexus agents list --json | jq -r '.agents[] | select(.presence == \"present\") | .agent_id'",
                ],
                nothing="no agent is registered",
            ),
            Verb(
                "create",
                "Create an agent. Its API key is shown only this once.",
                operation="agent_create",
                words=[AGENT],
                options=PROFILE,
                examples=[
                    "nexus agents create builder --role coder --capability python",
                    "nexus agents create builder --json | jq -r .api_key",
                ],
            ),
            Verb(
                "show",
                "Show an agent: profile, presence, key, mail.",
                self.show_agent,
                operation="agent_get",
                words=[AGENT],
                examples=["nexus agents show builder"],
            ),
            Verb(
                "update",
                "Change an agent's role, capabilities or metadata.",
                operation="agent_update",
                words=[AGENT],
                options=PROFILE,
                examples=["nexus agents update builder --role reviewer"],
            ),
            Verb(
                "key",
                "Issue a new API key, shown only this once, which ends the old one; or deactivate or activate the key.",
                self.key,
                _add_service,
                operation="agent_key_issue",
                words=[AGENT],
                examples=["nexus agents key builder", "nexus agents key builder --deactivate"],
            ),
            Verb(
                "issue-keys",
                "Issue an API key to every agent that has none, or to the agents that you name. Existing keys\n"
                "stay, so you can run it again. Each new key is shown only this once; only its hash is kept.",
                self.issue_keys,
                _add_agents,
                ["nexus agents issue-keys", "nexus agents issue-keys builder reviewer --json"],
            ),
            Verb(
                "delete",
                "Delete an agent: its key ends and its sessions close. Its mail and history stay.",
                operation="agent_delete",
                words=[AGENT],
                asks="Delete agent {agent_id!r}?",
                examples=["nexus agents delete builder", "nexus agents delete builder --yes --json"],
            ),
        )

    def list(self, options: Mapping[str, Any]) -> int:
        """Agents, one a row."""
        root = options["project_root"]
        workspace_id = workspaces.locate(root).workspace_id if root else None
        data = self.answer(options)
        return self.present(options, {**data, "agents": _described(data["agents"], workspace_id)})

    def show_agent(self, options: Mapping[str, Any]) -> int:
        """All there is to know of one agent."""
        agent = self.answer(options)
        [data] = _described([agent])
        key = AgentKey.objects.filter(agent_id=agent["agent_id"]).first()
        data["key"] = "none" if key is None else "active" if key.is_active else "deactivated"
        return self.show(options, data)

    def key(self, options: Mapping[str, Any]) -> int:
        """A new key, or the one there is out of and into service."""
        if options["active"] is None:
            return self.present(options, self.answer(options))
        given = {"agent_id": options["agent_id"], "active": options["active"]}
        return self.show(options, self.call("agent_key_set_active", **given))

    def issue_keys(self, options: Mapping[str, Any]) -> int:
        """Keys for all that have none, or for those of them that are named."""
        try:
            with write():  # all or none, and none twice: a key that is not shown, or replaced at once, is of no use
                keys = self._issue(options["agents"])
        except DatabaseError as error:
            raise documented(error) from None
        if options["json"]:
            self.print_json({"keys": keys})
        elif keys:
            self.print_rows({"agent": "agent_id", "key, shown this once": "api_key"}, keys)
        else:
            self.stdout.write("Nobody needed a key.")
        return 0

    def _issue(self, agents: Sequence[str]) -> Sequence[Data]:
        """A key for each of these agents, or of all, that has none. Raises NOT_FOUND."""
        for agent_id in agents:
            self.call("agent_get", agent_id=agent_id)
        keyless = selectors.agents_without_key()
        return [self.call("agent_key_issue", agent_id=each) for each in keyless if not agents or each in agents]


def _described(rows: Sequence[Data], workspace_id: str | None = None) -> Sequence[dict[str, Any]]:
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


def _json(field: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise invalid(f"--{field} is no JSON; a text goes in quotes of its own: '\"text\"'.", field=field) from None


AGENT = Option("agent_id", help="The agent's id.", exists=selectors.get_agent)
PROFILE = (
    Option("role", help="The role, by which messages and handoffs can address the agent."),
    Option(
        "capabilities",
        "--capability",
        "A capability, for messages and handoffs to address; repeatable.",
        repeated=True,
    ),
    Option("metadata", help="Other data that all agents may see, as JSON.", read=partial(_json, "metadata")),
    Option(
        "tags",
        help='Tags of the catalog (`nexus tags`), as JSON, such as {"team": ["core"]}.',
        read=partial(_json, "tags"),
    ),
)


def _add_project(parser: CommandParser) -> None:
    help = "Show presence in this project only, not in all projects."
    parser.add_argument("--project", dest="project_root", metavar="DIR", help=help)


def _add_service(parser: CommandParser) -> None:
    what = parser.add_mutually_exclusive_group()
    for flag, active, help in (
        ("--deactivate", False, "Deactivate the key."),
        ("--activate", True, "Activate the same key again."),
    ):
        what.add_argument(flag, dest="active", action="store_const", const=active, help=help)


def _add_agents(parser: CommandParser) -> None:
    parser.add_argument("agents", nargs="*", metavar="AGENT", help="Only these agents.")
