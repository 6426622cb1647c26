"""`nexus status`: the state of the hub on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from coordination import presence
from coordination.log.selectors import newest_event_id
from coordination.models import Workspace
from handoffs.models import LIVE, Handoff
from inbox.monitoring import Inbox, Picture
from nexus.core.apps import needs
from nexus.core.cli import EXIT_CODES, CommandGroup, OperatorCommand, ago, one_line, size
from nexus.core.clock import iso, now
from nexus.core.config import CoreSettings
from nexus.core.contributions import AttentionKind, Items
from nexus.core.database.store import store
from nexus.core.instance import running

ATTENTION = 4  # exit code: something needs a person
WIDEST = 160  # characters of the item that a line shows
STATUSES = ("unread", "in_flight", "parked")
WORDS = {"in_flight": "being handled", "parked": "dead letters", "stale": "quiet"}


class Command(OperatorCommand):
    group = CommandGroup.HUB
    help = "Show the state of server, store, agents, mail and handoffs, and what needs a person."
    examples = f"""examples:
  nexus status
  nexus status --json | jq .mail.unread
  nexus status > /dev/null || mail -s "Nexus needs a look" ops@example.org

{EXIT_CODES}
  {ATTENTION}  something needs a person; `attention` says what"""

    def act(self, options: Mapping[str, Any]) -> int:
        moment = now()
        picture = Picture(moment)
        attention = list(_attention(needs(picture, each=1)))
        data = {**self._facts(picture.agents, picture.inboxes, moment), "attention": attention}
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
            "database": CoreSettings.current().location,
            "database_bytes": store().size_on_disk(),
            "server": asdict(server) if server else None,
            "workspaces": Workspace.objects.count(),
            "agents": {str(state): counted[state] for state in presence.Presence},
            "mail": {status: sum(getattr(inbox, status) for inbox in mail.values()) for status in STATUSES},
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
    return ", ".join(f"{count} {WORDS.get(name, name.replace('_', ' '))}" for name, count in counted.items())


def _attention(found: Iterable[tuple[AttentionKind, Items]]) -> Iterator[str]:
    """Yield what needs a person, with the command that shows it."""
    for kind, these in found:
        if kind.command:
            need = these.needs[0]
            several = f"{these.count}{' or more' if these.or_more else ''}"
            summary = several if these.count > 1 else one_line(f"{need.title}, {need.detail}", WIDEST)
            yield f"{kind.title}: {summary}: {kind.command}"
