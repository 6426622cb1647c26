"""The demo's output: the event log as it grows, and the summary at the end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import connection
from django.db.models import Max

from coordination.models import Event
from handoffs.models import Handoff, HandoffStatus
from inbox.models import Delivery, DeliveryStatus, Message
from nexus_site.demo.team import PLANNER, REVIEWER, WORKERS, Agent, Score

COLOURS = {PLANNER: 35, WORKERS[0]: 36, WORKERS[1]: 33, REVIEWER: 32}  # of the terminal
SILENT = {"session.heartbeat"}
STREAMS = ("workspace", "handoff")


class Lines:
    """Lines with the time since the first, in the colour of the actor."""

    def __init__(self, write: Callable[[str], object], *, colour: bool) -> None:
        self._write, self._colour = write, colour
        self._started: float | None = None

    def report(self, actor: str, what: str) -> None:
        """Print who did what."""
        self.say(actor, f"{actor:<14}", f" {what}")

    def say(self, actor: str, coloured: str, rest: str = "") -> None:
        """Print one line, of which a part has the actor's colour."""
        moment = time.monotonic()
        self._started = self._started or moment
        if self._colour:
            coloured = f"\033[{COLOURS.get(actor, 37)}m{coloured}\033[0m"
        self._write(f"{moment - self._started:6.2f} s  {coloured}{rest}")


class Timeline:
    """Follows both streams of the log over MCP, as any viewer would."""

    def __init__(self, viewer: Agent, report: Callable[[str, str], None]) -> None:
        self.viewer, self.report = viewer, report
        self.claims: dict[str, list[str]] = {}
        self.cursors: dict[str, int] = {}  # by stream, the position from which it is followed

    async def begin(self) -> None:
        """Set the cursors, so that nothing is missed however late `follow` starts."""
        for stream in STREAMS:
            self.cursors[stream] = (await self.viewer.call("event_cursor", **self._where(stream)))["cursor"]

    async def follow(self) -> None:
        """Print events until cancelled."""
        async with asyncio.TaskGroup() as following:
            for stream in STREAMS:
                following.create_task(self._follow(stream))

    def _where(self, stream: str) -> dict[str, str]:
        return {"project_root": self.viewer.project_root, "agent_id": self.viewer.agent_id, "stream": stream}

    async def _follow(self, stream: str) -> None:
        where, cursor = self._where(stream), self.cursors[stream]
        while True:
            page = await self.viewer.call("event_wait", **where, cursor=cursor, timeout_seconds=5)
            for event in page["events"]:
                self._print(event)
            cursor = page["next_cursor"]

    def _print(self, event: dict[str, Any]) -> None:
        if event["type"] == "handoff.claimed":
            self.claims.setdefault(event["handoff_id"], []).append(event["payload"]["claimed_by"])
        if event["type"] in SILENT:
            return
        self.report(event["actor_agent_id"] or "-", _sentence(event))


def _sentence(event: dict[str, Any]) -> str:
    payload = event["payload"]
    match event["type"]:
        case "message.created":
            return f"writes to {', '.join(payload['recipients']) or 'nobody'}: {payload['subject']}"
        case "handoff.created":
            return f"offers work {_short(payload)} to whoever can {payload['target'].get('capability', '?')}"
        case "handoff.claimed" | "handoff.completed" | "handoff.rejected" | "handoff.cancelled" as kind:
            return f"{kind.removeprefix('handoff.')} work {_short(payload)}"
        case "artifact.created":
            return f"publishes an artifact of {payload['size_bytes']} bytes"
        case "session.opened":
            return "joins"
        case "session.closed":
            return "leaves"
    return str(event["type"])


def _short(payload: dict[str, Any]) -> str:
    return f"…{payload['handoff_id'][-6:]}"


class Line(NamedTuple):
    """One row of the summary: what is counted, the expected and the actual number."""

    what: str
    expected: int
    found: int


@dataclass(frozen=True)
class Summary:
    """The rows of the table, and the text below it."""

    lines: list[Line]
    remarks: list[str]

    @property
    def sound(self) -> bool:
        """Whether nothing was lost, and nothing was won twice."""
        return all(line.expected == line.found for line in self.lines)

    def table(self) -> str:
        """Return the summary for people."""
        rows = [f"{'':2}{'':34}{'expected':>10}{'found':>8}"]
        for line in self.lines:
            mark = "✓" if line.expected == line.found else "✗"
            rows.append(f"{mark:2}{line.what:34}{line.expected:>10}{line.found:>8}")
        return "\n".join([*rows, *(f"  {remark}" for remark in self.remarks)])


def newest_event() -> int:
    """Return the id of the newest event; 0 where there is none."""
    return Event.objects.aggregate(newest=Max("event_id"))["newest"] or 0


def account(project_root: str, score: Score, seen_claims: dict[str, list[str]], started_after: int) -> Summary:
    """Compare the team's own record with the rows of the store, and its events after the id `started_after`."""
    here = {"workspace__root_realpath": project_root}
    found = set(Message.objects.filter(**here).values_list("message_id", flat=True))
    mail = Delivery.objects.filter(message__workspace__root_realpath=project_root)
    deliveries, read = mail.count(), mail.filter(status=DeliveryStatus.READ).count()
    completed = Handoff.objects.filter(**here, status=HandoffStatus.COMPLETED).count()
    claims = Event.objects.filter(**here, type="handoff.claimed").count()
    events = Event.objects.filter(event_id__gt=started_after).count()
    last = newest_event()
    handoffs = len(score.handoffs)
    winners = Counter(winner for _, winner in score.wins)
    # On PostgreSQL a transaction that was rolled back uses up its ids.
    unbroken = [Line("events, without a gap", last - started_after, events)] if connection.vendor == "sqlite" else []
    return Summary(
        [
            Line("messages confirmed to senders", len(score.messages), len(found & set(score.messages))),
            Line("deliveries read", deliveries, read),
            Line("handoffs completed", handoffs, completed),
            Line("handoffs won, as confirmed to winners", handoffs, len({handoff for handoff, _ in score.wins})),
            Line("claims in the log", handoffs, claims),
            Line("claims seen by the viewer", handoffs, sum(map(len, seen_claims.values()))),
            *unbroken,
        ],
        [
            *(f"{winner} won {count}" for winner, count in sorted(winners.items())),
            f"{score.lost_races} claims came second and were refused",
        ],
    )
