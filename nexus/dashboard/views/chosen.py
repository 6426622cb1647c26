"""The details of a chosen mark of the timeline, and the titles of spans."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from coordination.log.lines import lines
from coordination.models import Event
from handoffs.models import Handoff
from handoffs.spans import Doing, Span
from handoffs.timeline import spans_of
from inbox import monitoring as inbox_monitoring
from nexus.control import timeline as at_work
from nexus.control.models import Question
from nexus.control.timeline import At, Stretch
from nexus.dashboard.forms import TimelineFilters
from nexus.dashboard.views import lanes

SHOWN_SENDS = 20
WORDS = {
    Doing.WAITING: "waits",
    Doing.CLAIMED: "claimed",
    Doing.WORKING: "in progress",
    Doing.BLOCKED: "blocked",
    Doing.CHECKING: "waits for a check",
    At.TURN: "a turn",
    At.FAILED: "a turn that failed",
    At.INTERRUPTED: "a turn that was interrupted",
    At.ASKING: "waits for a person",
}
ENDS = {
    "handoff.claimed": "when it was claimed",
    "handoff.started": "when work began",
    "handoff.blocked": "when it was blocked",
    "handoff.submitted": "when it was submitted",
    "handoff.returned": "when it was returned",
    "handoff.expired": "when its lease ran out",
    "handoff.released": "when an operator released it",
    "handoff.reassigned": "when an operator gave it to another",
    "handoff.restored": "when its release was taken back",
    "handoff.timed_out": "when its deadline passed",
    "handoff.accepted": "when it was accepted",
    "handoff.completed": "when it was completed",
    "handoff.rejected": "when it was rejected",
    "handoff.cancelled": "when it was cancelled",
}


def titles_of(spans: Sequence[lanes.Span]) -> dict[str, str]:
    """Return the titles of what spans belong to, by key."""
    ids = list({span.key for span in spans if isinstance(span, Span)})
    found = dict(at_work.titles([span for span in spans if isinstance(span, Stretch)]))
    for start in range(0, len(ids), 500):
        found |= dict(Handoff.objects.filter(pk__in=ids[start : start + 500]).values_list("pk", "title"))
    return found


def inspected(filters: TimelineFilters, moment: datetime) -> dict[str, Any] | None:
    """Return the span, step or messages that the URL names, for the template. If it no longer exists, the context says
    so; None if the URL names nothing."""
    handoff_id, _, event_id = filters.text("span").rpartition(".")
    if handoff_id:
        row = Handoff.objects.select_related("workspace").filter(pk=handoff_id).first()
        found = [span for span in spans_of(handoff_id) if str(span.event_id) == event_id]
        if row is None or not found:
            return {"kind": "gone"}
        span = found[0]
        lasted = (span.end or moment) - span.start if span.start else None
        return {"kind": "span", "span": span, "handoff": row, "word": WORDS[span.doing], "lasted": lasted,
                "ended": ENDS.get(span.ended_by or "", "")}  # fmt: skip
    if chosen := filters.text("span"):
        return _at_work(chosen, moment)
    if (step := filters.number("step")) is not None:
        event = Event.objects.filter(pk=step).first()
        return {"kind": "step", "line": lines([event])[0]} if event else {"kind": "gone"}
    since, until = filters.moment("sent_since"), filters.moment("sent_until")
    sender, recipient = filters.text("sender"), filters.text("recipient")
    if sender and recipient and since and until:
        deliveries = inbox_monitoring.sent_between(sender, recipient, since, until, SHOWN_SENDS)
        return {"kind": "sends", "sender": sender, "recipient": recipient, "deliveries": deliveries,
                "more": len(deliveries) == SHOWN_SENDS}  # fmt: skip
    return None


def _at_work(key: str, moment: datetime) -> dict[str, Any]:
    """Return a turn's details, or a question's."""
    if (found := at_work.turn(key)) is not None:
        turn, _ = found
        assert turn.started_at is not None
        return {"kind": "turn", "turn": turn, "doing": at_work.doing(turn), "word": WORDS[at_work.doing(turn)],
                "lasted": (turn.ended_at or moment) - turn.started_at}  # fmt: skip
    question = Question.objects.filter(pk=key).first()
    if question is None:
        return {"kind": "gone"}
    end = min(question.ended_at or moment, question.expires_at)
    return {"kind": "asking", "question": question, "word": WORDS[At.ASKING], "lasted": end - question.asked_at,
            "end": end if end < moment else None}  # fmt: skip
