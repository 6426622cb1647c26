"""The reads of handoffs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Min, TextField
from django.db.models.functions import Cast

from coordination import selectors as agents_known
from coordination.routing import Profile, Strategy, can_see, is_eligible, next_opening
from core.clock import now
from handoffs import lifecycle
from handoffs.models import Handoff, HandoffStatus

READ_AT_ONCE = 200
EXAMINED_AT_ONCE = 2_000  # open handoffs that one look holds against an agent


@dataclass(frozen=True)
class Page:
    """A page of handoffs; next_cursor is null on the last one."""

    handoffs: list[Handoff]
    next_cursor: str | None


def available(*, workspace_id: str, agent_id: str, after: int, limit: int) -> Page:
    """The open handoffs that an agent may see and may claim, oldest first (contract: handoff_list_available).

    A look that ended before the list did has a next_cursor, too, even where it found nothing.
    """
    agent, moment = agents_known.profile_of(agent_id), now()
    found: list[Handoff] = []
    examined, left = after, EXAMINED_AT_ONCE
    open_ones = Handoff.objects.in_state(HandoffStatus.OPEN, moment).filter(workspace_id=workspace_id)
    open_ones = open_ones.order_by("created_event_id")
    while batch := list(open_ones.filter(created_event_id__gt=examined)[:READ_AT_ONCE]):
        for handoff in batch:
            if visible(handoff, agent, moment) and eligible(handoff, agent, moment):
                if len(found) == limit:
                    return Page(found, str(examined))
                found.append(handoff)
            examined = handoff.created_event_id
        left -= len(batch)
        if len(batch) < READ_AT_ONCE:
            break
        if left <= 0:
            return Page(found, str(examined))
    return Page(found, None)


def visible(handoff: Handoff, agent: Profile, moment: datetime) -> bool:
    """Whether an agent of the handoff's workspace may see it; its creator always does."""
    return can_see(
        visibility=handoff.visibility,
        target=handoff.target,
        actor=handoff.from_agent_id,
        item_workspace=handoff.workspace_id,
        workspace=handoff.workspace_id,
        agent=agent,
        created_at=handoff.created_at,
        now=moment,
    )


def eligible(handoff: Handoff, agent: Profile, moment: datetime) -> bool:
    """Whether the target admits an agent now."""
    return is_eligible(handoff.target, agent, created_at=handoff.created_at, now=moment)


def next_change(workspace_id: str) -> datetime | None:
    """When time alone next makes a handoff of the workspace available: a lease lapses or a fallback opens."""
    moment = now()
    here = Handoff.objects.filter(workspace_id=workspace_id)
    lapses = here.claimed().filter(lease_expires_at__gte=moment).aggregate(first=Min("lease_expires_at"))["first"]
    moments = [lapses + timedelta(microseconds=1)] if lapses else []  # the boundary itself does not expire
    timed = here.in_state(HandoffStatus.OPEN, moment).alias(text=Cast("target", TextField()))
    timed = timed.filter(text__contains=Strategy.DIRECT_WITH_FALLBACK.value).order_by("created_event_id")
    for target, created_at in timed.values_list("target", "created_at")[:EXAMINED_AT_ONCE]:
        if opening := next_opening(target, created_at=created_at, now=moment):
            moments.append(opening)
    return min(moments, default=None)


def reopened(handoff: Handoff, moment: datetime) -> Handoff:
    """The handoff as it counts: a claim that has lapsed is no claim, whether or not that was recorded yet."""
    if lifecycle.lapsed(status=handoff.status, lease_expires_at=handoff.lease_expires_at, now=moment):
        handoff.status, handoff.claimed_by, handoff.lease_expires_at = HandoffStatus.OPEN, None, None
    return handoff
