"""`nexus status`: the state of the hub on one screen."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from coordination import presence
from coordination.log.selectors import newest_event_id
from coordination.models import Workspace
from core.cli import EXIT_CODES, OperatorCommand, ago, size
from core.cli import Group as Section
from core.clock import iso, now
from core.config import CoreSettings
from core.database import store
from core.instance import running
from handoffs.attention import Group, Kind, groups
from handoffs.models import LIVE, Handoff
from inbox.monitoring import Inbox, inboxes

ATTENTION = 4  # exit code: something needs a person
LANES = ("unread", "in_flight", "parked")


class Command(OperatorCommand):
    group = Section.HUB
    help = "Tell what is here: server, store, agents, mail, handoffs, and what needs a person."
    examples = f"""examples:
  nexus status
  nexus status --json | jq .mail.unread
  nexus status > /dev/null || mail -s "Nexus needs a look" ops@example.org

{EXIT_CODES}
  {ATTENTION}  something needs a person; `attention` says what"""

    def act(self, options: Mapping[str, Any]) -> int:
        moment = now()
        mail = inboxes(moment)
        agents = presence.agent_states(moment)
        attention = list(_attention(groups(moment, agents, mail)))
        data = {**self._facts(agents, mail, moment), "attention": attention}
        if options["json"]:
            self.print_json(data)
        else:
            self._print(data)
        return ATTENTION if attention else 0

    def _facts(
        self, agents: Sequence[presence.AgentState], mail: Mapping[str, Inbox], moment: datetime
    ) -> dict[str, Any]:
        server = running(CoreSettings.current().home)
        counted = Counter(state.presence for state in agents)
        oldest = min((inbox.oldest_unread for inbox in mail.values() if inbox.oldest_unread), default=None)
        return {
            "versions": self.call("nexus_info"),
            "home": str(CoreSettings.current().home),
            "database": CoreSettings.current().place,
            "database_bytes": store().size_on_disk(),
            "server": asdict(server) if server else None,
            "workspaces": Workspace.objects.count(),
            "agents": {str(state): counted[state] for state in presence.Presence},
            "mail": {lane: sum(getattr(inbox, lane) for inbox in mail.values()) for lane in LANES},
            "oldest_unread_at": iso(oldest),
            "handoffs": {status.lower(): Handoff.objects.in_state(status, moment).count() for status in LIVE},
            "newest_event_id": newest_event_id(),
        }

    def _print(self, data: Mapping[str, Any]) -> None:
        server = data["server"]
        serving = f"process {server['pid']} on {server['host']}:{server['port']}" if server else "not running"
        waiting = f", the oldest for {ago(data['oldest_unread_at'])}".removesuffix(" ago")
        lines = {
            "server": serving,
            "store": f"{data['database']}, {size(data['database_bytes'])}",
            "version": f"{data['versions']['package_version']}, schema {data['versions']['schema_version']}",
            "workspaces": data["workspaces"],
            "agents": _counts(data["agents"]),
            "mail": _counts(data["mail"]) + (waiting if data["oldest_unread_at"] else ""),
            "handoffs": _counts(data["handoffs"]),
            "events": f"newest {data['newest_event_id']}",
        }
        for name, text in lines.items():
            self.stdout.write(f"{name:<11} {text}")
        for need in data["attention"]:
            self.stdout.write(f"attention   {need}")


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counted.items())


def _attention(found: Iterable[Group]) -> Iterator[str]:
    """What keeps the hub from working until a person acts, and the command that shows it."""
    for group in found:
        match group.kind:
            case Kind.DISK:
                yield f"{group.needs[0].title}, {group.needs[0].detail}: nexus prune --vacuum"
            case Kind.DEAD_LETTERS:
                for agent_id, count in group.by_agent.items():
                    yield f"{count} dead letters: nexus inbox {shlex.quote(agent_id)} --parked"
            case Kind.ORPHANS:
                yield f"{group.count} open handoffs that no registered agent may claim: nexus handoffs"
