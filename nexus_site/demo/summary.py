"""The demo's summary: the team's own record compared with the store."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection
from django.db.models import Max

from coordination.models import Event
from handoffs.models import Handoff, HandoffStatus
from inbox.models import Delivery, DeliveryStatus, Message
from nexus_site.demo.team import Score


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
