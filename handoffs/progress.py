"""Steps between claim and completion: start, block, extend, and the verifier's verdict."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F

from coordination.services import agents, workspaces
from handoffs import check_runs, leases, lifecycle, remarks, selectors
from handoffs.leases import expire
from handoffs.models import HELD, Handoff, HandoffStatus, RemarkKind
from handoffs.notices import notify, unblocked
from handoffs.steps import changed_meanwhile, find, record, refresh_plan, settle, work
from nexus.core.clock import iso, now
from nexus.core.database.prepared import Slot, Update
from nexus.core.database.store import write
from nexus.core.limits import within_limit
from nexus.core.operations.caller import HUB_AGENT, OPERATOR_AGENT
from nexus.core.operations.errors import invalid

_move = Update(
    lambda: Handoff.objects.filter(
        pk=Slot("handoff_id"),
        status=Slot("former"),
        claimed_by=Slot("claimed_by"),
        claim_epoch=Slot("claim_epoch"),
        lease_expires_at__gte=Slot("moment"),
    ),
    status=Slot("status"),
    blocked_reason=Slot("blocked_reason"),
    updated_at=Slot("moment"),
)
_lengthen = Update(
    lambda: Handoff.objects.filter(pk=Slot("handoff_id"), status__in=HELD, lease_expires_at=Slot("read")),
    lease_expires_at=Slot("until"),
    updated_at=Slot("moment"),
)
_give_back = Update(
    lambda: Handoff.objects.filter(pk=Slot("handoff_id"), status=HandoffStatus.SUBMITTED),
    status=HandoffStatus.CLAIMED,
    lease_expires_at=Slot("until"),
    claim_epoch=F("claim_epoch") + 1,
    result=None,
    updated_at=Slot("moment"),
)


class By(NamedTuple):
    """Who gives a verdict or extends a lease: an agent, for a claim if it names one, or an operator, who may do so for
    any handoff."""

    agent_id: str = OPERATOR_AGENT
    operator: str | None = None
    claim_epoch: int | None = None

    @property
    def actor(self) -> str | None:
        """The actor's name in the event log."""
        return None if self.operator or self.agent_id == HUB_AGENT else self.agent_id

    @property
    def event_fields(self) -> dict[str, str]:
        """The operator's name, as a field of the event; empty for an agent."""
        return {"operator": self.operator} if self.operator else {}


def start(*, project_root: str, handoff_id: str, agent_id: str, claim_epoch: int | None = None) -> Handoff:
    """Mark a handoff that the agent holds as in progress, also after a block. Repeating it changes nothing.

    Raises WORKSPACE_UNRESOLVED, NOT_FOUND, WORKSPACE_MISMATCH, STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER.
    """
    project = workspaces.locate(project_root)
    expire(project.workspace_id)
    with write(project.workspace_id, agent_id):
        moment = now()
        handoff = find(project.workspace_id, handoff_id)
        if _moved(handoff, "start", agent_id, None, moment, claim_epoch):
            record(handoff, "started", agent_id, moment)
        agents.touch(agent_id, moment)
        handoff.refresh_from_db(fields=["lease_expires_at"])
    return handoff


def block(
    *, project_root: str, handoff_id: str, agent_id: str, reason: str, claim_epoch: int | None = None
) -> tuple[Handoff, list[str]]:
    """Mark a handoff that the agent holds as blocked, with the reason; notify its creator and return whom the notice
    reached.

    The lease is kept; `start` continues. Repeating it with the same reason changes nothing. Raises as `start` does,
    CONTENT_TOO_LARGE, and VALIDATION_ERROR for a blank reason.
    """
    project = workspaces.locate(project_root)
    _require_text(reason, "reason")
    expire(project.workspace_id)
    notified: list[str] = []
    with write(project.workspace_id, agent_id):
        moment = now()
        handoff = find(project.workspace_id, handoff_id)
        if _moved(handoff, "block", agent_id, reason, moment, claim_epoch):
            record(handoff, "blocked", agent_id, moment, reason=reason)
            body = f"{agent_id} cannot go on: {reason}\n\nIt keeps the handoff; answer it with message_create."
            notified = notify(handoff, handoff.from_agent_id, "is blocked", body, moment, by=agent_id)
        agents.touch(agent_id, moment)
        handoff.refresh_from_db(fields=["lease_expires_at"])
    return handoff, notified


def _moved(
    handoff: Handoff, verb: str, agent_id: str, reason: str | None, moment: datetime, claim_epoch: int | None
) -> bool:
    """Apply a verb while the lease runs; return whether the state, or the reason of the block, changed."""
    former = handoff.status
    handoff = selectors.with_current_status(handoff, moment)
    status = remarks.step(verb, handoff, agent_id, moment, claim_epoch)
    if (former, handoff.blocked_reason) == (status, reason):
        return False
    of = {"handoff_id": handoff.handoff_id, "former": former, "claimed_by": agent_id, "moment": moment}
    of["claim_epoch"] = handoff.claim_epoch
    if not _move(**of, status=status, blocked_reason=reason):
        raise changed_meanwhile()
    handoff.status, handoff.blocked_reason = status, reason
    return True


def extend(
    *, project_root: str, handoff_id: str, agent_id: str, seconds: int | None, claim_epoch: int | None = None
) -> Handoff:
    """Extend a lease to `seconds` from now, by default to a whole lease; it never becomes shorter.

    Raises as `start` does.
    """
    project = workspaces.locate(project_root)
    expire(project.workspace_id)
    with write(project.workspace_id, agent_id):
        handoff = find(project.workspace_id, handoff_id)
        _extend(handoff, By(agent_id, claim_epoch=claim_epoch), seconds)
        agents.touch(agent_id, now())
    return handoff


def prolong(*, handoff_id: str, seconds: int | None, operator: str) -> Handoff:
    """Extend any holder's lease, as an operator. Raises NOT_FOUND, INVALID_TRANSITION."""
    expire(selectors.get_handoff(handoff_id).workspace_id)
    with write():
        handoff = selectors.get_handoff(handoff_id)
        _extend(handoff, By(operator=operator), seconds)
    return handoff


def _extend(handoff: Handoff, by: By, seconds: int | None) -> None:
    moment = now()
    handoff = selectors.with_current_status(handoff, moment)
    _step("extend", handoff, by, moment)
    read = handoff.lease_expires_at
    assert read is not None, "what is held has a lease"
    until = max(read, moment + _lease(handoff, seconds))
    if not _lengthen(handoff_id=handoff.handoff_id, read=read, until=until, moment=moment):
        raise changed_meanwhile()
    handoff.lease_expires_at = until
    record(handoff, "extended", by.actor, moment, lease_expires_at=iso(until), **by.event_fields)


def accept(*, project_root: str, handoff_id: str, agent_id: str, claim_epoch: int | None = None) -> list[str]:
    """Accept a submitted handoff, which completes it; return whom a notice reached.

    Raises WORKSPACE_UNRESOLVED, NOT_FOUND, WORKSPACE_MISMATCH, STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER.
    """
    project = workspaces.locate(project_root)
    refresh_plan(project, handoff_id)
    with write(project.workspace_id, agent_id):
        notified = accept_now(find(project.workspace_id, handoff_id), By(agent_id, claim_epoch=claim_epoch))
        agents.touch(agent_id, now())
    return notified


def approve(*, handoff_id: str, operator: str) -> list[str]:
    """Accept a submitted handoff as an operator. Raises NOT_FOUND, INVALID_TRANSITION."""
    refresh_plan(workspaces.directory_of(selectors.get_handoff(handoff_id).workspace), handoff_id)
    with write():
        return accept_now(selectors.get_handoff(handoff_id), By(operator=operator))


def accept_now(handoff: Handoff, by: By) -> list[str]:
    """Accept a submitted handoff inside a transaction, before which `refresh_plan` was called; return whom a notice
    reached. Raises INVALID_TRANSITION, and NOT_OWNER and STALE_CLAIM for an agent."""
    moment = now()
    status = _step("accept", handoff, by, moment)
    if by.operator is None:
        check_runs.require_passed(selectors.check_runs_of(handoff))
    settle(handoff, status, moment, result=handoff.result)
    check_runs.drop(selectors.check_runs_of(handoff))
    record(handoff, "accepted", by.actor, moment, **by.event_fields)
    record(handoff, "completed", handoff.claimed_by, moment)
    unblocked(handoff, handoff.claimed_by, moment)
    doer = str(handoff.claimed_by)
    if handoff.task_key is not None:
        work().completed(handoff.task_key, workspaces.directory_of(handoff.workspace), doer, moment)
    body = f"{by.operator or by.agent_id} accepted what {doer} did; handoff_get has the whole outcome."
    waiting = dict.fromkeys([doer, handoff.from_agent_id])
    return [name for each in waiting for name in notify(handoff, each, "was accepted", body, moment, by=by.agent_id)]


def send_back(
    *, project_root: str, handoff_id: str, agent_id: str, reasons: str, claim_epoch: int | None = None
) -> list[str]:
    """Return a submitted handoff to the agent that did it, with the reasons and a new lease; return whom the notice
    reached.

    Raises as `accept` does, CONTENT_TOO_LARGE, and VALIDATION_ERROR for blank reasons.
    """
    project = workspaces.locate(project_root)
    _require_text(reasons, "reasons")
    with write(project.workspace_id, agent_id):
        notified = return_now(find(project.workspace_id, handoff_id), By(agent_id, claim_epoch=claim_epoch), reasons)
        agents.touch(agent_id, now())
    return notified


def send_back_as_operator(*, handoff_id: str, reasons: str, operator: str) -> list[str]:
    """Return a submitted handoff as an operator. Raises NOT_FOUND, INVALID_TRANSITION, CONTENT_TOO_LARGE,
    VALIDATION_ERROR."""
    _require_text(reasons, "reasons")
    with write():
        return return_now(selectors.get_handoff(handoff_id), By(operator=operator), reasons)


def return_now(handoff: Handoff, by: By, reasons: str, *, is_known: bool = False) -> list[str]:
    """Return a submitted handoff inside a transaction; return whom the notice reached. If the doer `is_known` to learn
    of it in another way, there is none. Raises as `accept_now` does."""
    moment = now()
    _step("return", handoff, by, moment)
    check_runs.drop(selectors.check_runs_of(handoff))
    return give_back(handoff, by, reasons, moment, is_known=is_known)


def give_back(handoff: Handoff, by: By, reasons: str, moment: datetime, *, is_known: bool = False) -> list[str]:
    """Give a submitted handoff back to the agent that did it, inside a transaction; return whom the notice reached."""
    doer, until = str(handoff.claimed_by), moment + _lease(handoff, None)
    if not _give_back(handoff_id=handoff.handoff_id, until=until, moment=moment):
        raise changed_meanwhile()
    handoff.claim_epoch += 1
    remarks.keep(handoff, doer, RemarkKind.RESULT, handoff.result, moment)
    remarks.keep(handoff, by.agent_id, RemarkKind.RETURNED, reasons, moment)
    record(
        handoff,
        "returned",
        by.actor,
        moment,
        claimed_by=doer,
        claim_epoch=handoff.claim_epoch,
        reason=reasons,
        **by.event_fields,
    )
    if is_known:
        return []
    body = (
        f"{by.operator or by.agent_id} returned it: {reasons}\n\n"
        f"It is yours again until {iso(until)}, and so are the files that you reserved for it and whose lease still "
        f"runs. When it is right, handoff_complete(handoff_id={handoff.handoff_id!r}) again. The claim's epoch is "
        f"{handoff.claim_epoch} now."
    )
    return notify(handoff, doer, "was returned to you", body, moment, by=by.agent_id)


def _step(verb: str, handoff: Handoff, by: By, moment: datetime) -> str:
    if by.operator:
        return lifecycle.step(verb, handoff.status, {lifecycle.Part.OPERATOR})
    return remarks.step(verb, handoff, by.agent_id, moment, by.claim_epoch)


def _lease(handoff: Handoff, seconds: int | None) -> timedelta:
    """Return the length of the lease: as requested now, else as requested at the claim."""
    return timedelta(seconds=leases.seconds(seconds, handoff.lease_seconds))


def _require_text(text: str, field: str) -> None:
    if not text.strip():
        raise invalid(f"{field} must not be blank.", field=field)
    within_limit(text, field)
