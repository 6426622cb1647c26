"""Remarks on a handoff beside its outcome. A result that comes too late is refused with the reason, and kept as one."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import NamedTuple

from coordination.errors import check_claim
from coordination.models import Event
from handoffs import lifecycle, selectors
from handoffs.models import LIVE, Handoff, HandoffStatus, Remark, RemarkKind
from nexus.core.operations.errors import NexusError

MOST_LATE = 10  # late results that one handoff keeps
ADVICE = "handoff_extend keeps a claim for longer than the signs of life that renew it."


class LostClaim(NamedTuple):
    """A claim that an agent has lost."""

    lapsed_at: str | None  # None where its lease did not lapse


class Stored(Enum):
    """Whether a remark was kept, as the end of a sentence."""

    NEW = "is kept with the handoff as a remark"
    AGAIN = "was kept with the handoff as a remark before"
    NO = f"is not kept: there are {MOST_LATE} late results already"


def lost_claim(handoff: Handoff, agent_id: str, claim_epoch: int | None = None) -> LostClaim | None:
    """Return the claim that an agent had on a handoff and lost, its latest or the one of an epoch; None where it still
    has it, settled it, or never had one."""
    if handoff.claimed_by == agent_id and claim_epoch in (None, handoff.claim_epoch):
        return None
    events = Event.objects.filter(handoff_id=handoff.handoff_id, type__in=("handoff.claimed", "handoff.expired"))
    lost: LostClaim | None = None
    for type, actor, payload in events.order_by("event_id").values_list("type", "actor_agent_id", "payload"):
        if claim_epoch is not None and payload.get("claim_epoch", 0) > claim_epoch:
            break
        if type == "handoff.claimed" and actor == agent_id:
            lost = LostClaim(None)
        elif type == "handoff.expired" and payload.get("claimed_by") == agent_id:
            lost = LostClaim(payload.get("lapsed_at"))
    return lost


def add_remark(handoff: Handoff, agent_id: str, kind: RemarkKind, text: str | None, moment: datetime) -> Stored:
    """Add a remark, unless the handoff has the same one already. Call it inside a transaction."""
    there = Remark.objects.filter(handoff=handoff, kind=kind)
    if there.filter(agent_id=agent_id, text=text).exists():
        return Stored.AGAIN
    if kind == RemarkKind.LATE_RESULT and there.count() >= MOST_LATE:
        return Stored.NO
    Remark.objects.create(handoff=handoff, agent_id=agent_id, kind=kind, text=text, created_at=moment)
    return Stored.NEW


def explained(
    refusal: NexusError, handoff: Handoff, agent_id: str, lost: LostClaim, moment: datetime, kept: Stored | None = None
) -> NexusError:
    """Explain a refusal to a former holder: what happened, who holds the handoff now, and what to do."""
    status = selectors.state_at(handoff, moment)
    what = f"Your lease lapsed at {lost.lapsed_at}" if lost.lapsed_at else "You do not have this handoff any more"
    if status == HandoffStatus.OPEN:
        now = "nobody has it now: handoff_claim it again, then complete it"
    elif status in LIVE:
        holder = "another session of yours" if handoff.claimed_by == agent_id else handoff.claimed_by
        now = f"{holder} has it now ({status}): send what you have to that agent"
    else:
        now = f"it is {status} now; handoff_get shows how it ended"
    result = f" Your result {kept.value}." if kept else ""
    details = {**refusal.details, "status": status, "lapsed_at": lost.lapsed_at, "claimed_by": handoff.claimed_by}
    if kept:
        details["kept"] = kept is not Stored.NO
    return NexusError(refusal.code, f"{refusal.message} {what}, and {now}.{result} {ADVICE}", details)


def step(verb: str, handoff: Handoff, agent_id: str, moment: datetime, claim_epoch: int | None = None) -> str:
    """Apply `lifecycle.step` for an agent; the refusal of a former holder explains what happened.

    Raises STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER.
    """
    try:
        check_claim(claim_epoch, handoff.claim_epoch, "handoff")
        return lifecycle.step(verb, handoff.status, selectors.parts(handoff, agent_id))
    except NexusError as refusal:
        lost = lost_claim(handoff, agent_id, claim_epoch)
        if lost is None:
            raise
        raise explained(refusal, handoff, agent_id, lost, moment) from None


def of(handoff: Handoff) -> list[Remark]:
    """Return the remarks on a handoff, oldest first."""
    return list(Remark.objects.filter(handoff=handoff).order_by("pk"))
