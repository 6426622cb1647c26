"""The verbs of handoffs: create, claim, complete, reject, cancel. One transaction each, exactly one winner."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import OperationalError
from django.db.models import Q

from coordination import selectors as agents_known
from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.lookups import agent_exists
from coordination.models import Event
from coordination.routing import Strategy, Target, parse_target
from coordination.services import agents, retries, workspaces
from core.clock import now
from core.database import store, write
from core.database.prepared import Select, Slot, Update, insert
from core.limits import opaque_text, within_limit
from core.operations.errors import Code, NexusError, invalid, not_found
from handoffs import lifecycle, quotas, selectors
from handoffs.config import HandoffSettings
from handoffs.errors import HandoffCode
from handoffs.models import STREAM, Handoff, HandoffStatus
from handoffs.titles import in_a_line, in_quotes, title_of
from handoffs.work import work
from inbox import services as mail

RESULT_IN_NOTICE = 2000  # characters of a result that its notice quotes; handoff_get has it whole

_by_id = Select(lambda: Handoff.objects.filter(pk=Slot("handoff_id")))
_lapsed = Select(
    lambda: (
        Handoff.objects.held()
        .filter(workspace_id=Slot("workspace_id"), lease_expires_at__lt=Slot("moment"))
        .values_list("pk")
    )
)
_take = Update(
    lambda: Handoff.objects.open().filter(pk=Slot("handoff_id"), workspace_id=Slot("workspace_id")),
    status=HandoffStatus.CLAIMED,
    claimed_by=Slot("agent_id"),
    claimed_at=Slot("moment"),
    lease_expires_at=Slot("lease"),
    updated_at=Slot("moment"),
)
_end = Update(
    lambda: Handoff.objects.filter(
        Q(claimed_by=Slot("claimed_by")) | Q(claimed_by=None), pk=Slot("handoff_id"), status=Slot("former")
    ),
    status=Slot("status"),
    result=Slot("result"),
    rejected_reason=Slot("rejected_reason"),
    lease_expires_at=None,
    updated_at=Slot("moment"),
)


class Created(NamedTuple):
    """A new handoff, whom a notice reached, and how many agents a pool target admits (None for a direct one)."""

    handoff: Handoff
    notified: list[str]
    eligible_count: int | None
    duplicate: bool = False  # created before, with the same client_id


# What a call says; the title may be the payload's, and the deadline is counted from the first call.
CONTENT = ("workspace_id", "title", "target", "visibility", "payload", "task_id")


def create(
    *,
    project_root: str,
    from_agent_id: str,
    target: Any,
    visibility: str,
    payload: Any,
    task_id: int | None = None,
    title: str | None = None,
    client_id: str | None = None,
) -> Created:
    """Create an OPEN handoff; one that its creator made with the same client_id before is answered as it is now.

    Raises VALIDATION_ERROR (missing or malformed target), WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, QUOTA_EXCEEDED, and
    NOT_FOUND for a direct target that is no registered agent, and for a task that the open cycle has not.
    """
    parsed = parse_target(target)
    if parsed is None:
        raise invalid('target is required, such as {"strategy": "capability", "capability": "ocr"}.', field="target")
    place, moment = workspaces.locate(project_root), now()
    text = opaque_text(payload, "payload")
    with write():
        handoff = Handoff(
            handoff_id=new_id("hnd"),
            workspace_id=place.workspace_id,
            from_agent_id=from_agent_id,
            title=in_a_line(title or "") or title_of(text, parsed),
            target=parsed,
            visibility=visibility,
            payload=text,
            task_id=task_id,
            client_id=client_id,
            created_at=moment,
            updated_at=moment,
        )
        if first := retries.made_before(handoff, maker=("from_agent_id",), same=CONTENT):
            agents.touch(from_agent_id, moment)
            return Created(selectors.reopened(first, moment), [], None, duplicate=True)
        quotas.check_open(from_agent_id)
        workspaces.ensure(place, moment)
        if parsed["strategy"] == Strategy.DIRECT and not agent_exists(parsed["agent_id"]):
            raise not_found("agent", parsed["agent_id"])
        handoff.task_key = None if task_id is None else work().find(place.workspace_id, task_id)
        event = _record(handoff, "created", from_agent_id, moment)
        handoff.created_event_id = event.event_id
        insert(handoff)
        notified = _notify_target(handoff, moment)
        agents.touch(from_agent_id, moment)
    return Created(handoff, notified, None if parsed["strategy"] == Strategy.DIRECT else _count_eligible(handoff))


def claim(*, project_root: str, handoff_id: str, agent_id: str) -> Handoff:
    """Take an OPEN handoff; of many that try, one conditional update lets one win.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, NOT_ELIGIBLE_TO_CLAIM, HANDOFF_ALREADY_CLAIMED.
    """
    place = workspaces.locate(project_root)
    expire_leases(place.workspace_id)
    moment = now()
    lease = moment + timedelta(seconds=HandoffSettings.current().handoff_lease_ttl_seconds)
    with write():
        handoff = _find(place.workspace_id, handoff_id)
        if not selectors.eligible(handoff, agents_known.profile_of(agent_id), moment):
            raise NexusError(
                HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
                "The target of this handoff does not admit you.",
                {"handoff_id": handoff_id},
            )
        won = {"handoff_id": handoff_id, "workspace_id": place.workspace_id, "agent_id": agent_id}
        if not _take(**won, lease=lease, moment=moment):
            raise NexusError(
                HandoffCode.HANDOFF_ALREADY_CLAIMED,
                f"This handoff is {handoff.status} already; look for others with handoff_list_available.",
                {"handoff_id": handoff_id, "status": handoff.status},
            )
        handoff.status, handoff.claimed_by, handoff.lease_expires_at = HandoffStatus.CLAIMED, agent_id, lease
        _record(handoff, "claimed", agent_id, moment, claimed_by=agent_id)
        if handoff.task_key is not None:
            work().started(handoff.task_key, place, agent_id, moment)
        agents.touch(agent_id, moment)
    return handoff


def complete(*, project_root: str, handoff_id: str, agent_id: str, result: Any) -> list[str]:
    """Finish a claimed handoff with its result; whom the notice reached.

    Raises WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, NOT_FOUND, WORKSPACE_MISMATCH, INVALID_TRANSITION, NOT_OWNER.
    """
    place, moment = workspaces.locate(project_root), now()
    text = opaque_text(result, "result")
    with write():
        handoff = _find(place.workspace_id, handoff_id)
        lifecycle.check_complete(status=handoff.status, claimed_by=handoff.claimed_by, agent_id=agent_id)
        _settle(handoff, HandoffStatus.COMPLETED, moment, result=text)
        _record(handoff, "completed", agent_id, moment)
        if handoff.task_key is not None:
            work().completed(handoff.task_key, place, agent_id, moment)
        notified = _notify_creator(handoff, agent_id, "completed", text, moment)
        agents.touch(agent_id, moment)
    return notified


def reject(*, project_root: str, handoff_id: str, agent_id: str, reason: str | None) -> list[str]:
    """Refuse a handoff one holds or is the direct target of; whom the notice reached.

    Raises as `complete` does.
    """
    place, moment = workspaces.locate(project_root), now()
    within_limit(reason, "reason")
    with write():
        handoff = _find(place.workspace_id, handoff_id)
        lifecycle.check_reject(
            status=handoff.status, claimed_by=handoff.claimed_by, target=handoff.target, agent_id=agent_id
        )
        _settle(handoff, HandoffStatus.REJECTED, moment, rejected_reason=reason)
        _record(handoff, "rejected", agent_id, moment, reason=reason)
        if handoff.task_key is not None and handoff.claimed_by is not None:
            work().returned(handoff.task_key, place, agent_id, agent_id, moment)
        notified = _notify_creator(handoff, agent_id, "rejected", reason, moment)
        agents.touch(agent_id, moment)
    return notified


def cancel(*, project_root: str, handoff_id: str, agent_id: str, reason: str | None) -> None:
    """Retract an open handoff one created.

    Raises WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER, INVALID_TRANSITION.
    """
    place = workspaces.locate(project_root)
    within_limit(reason, "reason")
    expire_leases(place.workspace_id)
    moment = now()
    with write():
        handoff = _find(place.workspace_id, handoff_id)
        lifecycle.check_cancel(status=handoff.status, created_by=handoff.from_agent_id, agent_id=agent_id)
        _settle(handoff, HandoffStatus.CANCELLED, moment)
        _record(handoff, "cancelled", agent_id, moment, reason=reason)
        agents.touch(agent_id, moment)


def withdraw(*, handoff_id: str, reason: str | None, operator: str) -> Handoff:
    """Retract any open handoff, as an operator; one that is claimed is its claimant's until the lease lapses.

    Raises CONTENT_TOO_LARGE, NOT_FOUND, INVALID_TRANSITION.
    """
    within_limit(reason, "reason")
    handoff = Handoff.objects.filter(pk=handoff_id).first()
    if handoff is None:
        raise not_found("handoff", handoff_id)
    expire_leases(handoff.workspace_id)
    moment = now()
    with write():
        handoff.refresh_from_db()
        lifecycle.check_cancel(status=handoff.status, created_by=handoff.from_agent_id, agent_id=handoff.from_agent_id)
        _settle(handoff, HandoffStatus.CANCELLED, moment)
        _record(handoff, "cancelled", None, moment, reason=reason, operator=operator)
    return handoff


def get(*, project_root: str, handoff_id: str, agent_id: str) -> Handoff:
    """One handoff, for its creator, its claimant and whoever its visibility admits.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER.
    """
    place = workspaces.locate(project_root)
    record_expiries(place.workspace_id)
    handoff = selectors.reopened(_find(place.workspace_id, handoff_id), now())
    if agent_id != handoff.claimed_by and not selectors.visible(handoff, agents_known.profile_of(agent_id), now()):
        raise NexusError(Code.NOT_OWNER, "This handoff is not visible to you.", {"handoff_id": handoff_id})
    return handoff


def expire_leases(workspace_id: str) -> None:
    """Reopen the workspace's handoffs whose lease has lapsed, with an event each.

    A plain read decides whether there is anything to do: what only looks must not take the writer's lock.
    """
    if _lapsed.first(workspace_id=workspace_id, moment=now()) is None:
        return
    with write():
        moment = now()
        for handoff in Handoff.objects.lapsed(moment).filter(workspace_id=workspace_id):
            former = handoff.claimed_by
            if (
                Handoff.objects.lapsed(moment)
                .filter(pk=handoff.pk)
                .update(
                    status=HandoffStatus.OPEN,
                    claimed_by=None,
                    claimed_at=None,
                    lease_expires_at=None,
                    updated_at=moment,
                )
            ):
                _record(handoff, "expired", None, moment, claimed_by=former)
                if handoff.task_key is not None:
                    work().returned(handoff.task_key, workspaces.place_of(handoff.workspace), former, None, moment)


def record_expiries(workspace_id: str) -> None:
    """`expire_leases` beside a read: not while a writer holds the store. A lapsed claim reads as open meanwhile."""
    with store().without_waiting():
        try:
            expire_leases(workspace_id)
        except OperationalError:
            return  # whoever writes next records them


def expire_leases_everywhere() -> None:
    """Reopen what has lapsed in every workspace: for a reaper in the background."""
    for workspace_id in set(Handoff.objects.lapsed(now()).values_list("workspace_id", flat=True)):
        expire_leases(workspace_id)


def _find(workspace_id: str, handoff_id: str) -> Handoff:
    handoff = _by_id.first(handoff_id=handoff_id)
    if handoff is None:
        raise not_found("handoff", handoff_id)
    if handoff.workspace_id != workspace_id:
        raise workspaces.mismatch("handoff", handoff_id)
    return handoff


def _settle(
    handoff: Handoff,
    status: HandoffStatus,
    moment: datetime,
    *,
    result: str | None = None,
    rejected_reason: str | None = None,
) -> None:
    """Move to a terminal state from the state that was checked; who is open has no claimant, by constraint."""
    ended = _end(
        handoff_id=handoff.handoff_id,
        former=handoff.status,
        claimed_by=handoff.claimed_by or "",
        status=status.value,
        result=result,
        rejected_reason=rejected_reason,
        moment=moment,
    )
    if not ended:
        raise NexusError(Code.INVALID_TRANSITION, "The handoff changed meanwhile; look at it with handoff_get.")


def _named_agent(target: Target) -> str | None:
    """The agent that a directed target names."""
    directed = target["strategy"] in (Strategy.DIRECT, Strategy.DIRECT_WITH_FALLBACK)
    return target["agent_id"] if directed else None


def _count_eligible(handoff: Handoff) -> int:
    """The registered agents that the target admits now; whom a fallback admits later does not count."""
    return sum(selectors.eligible(handoff, agent, handoff.created_at) for agent in agents_known.profiles())


def _notify_target(handoff: Handoff, moment: datetime) -> list[str]:
    named = _named_agent(handoff.target)
    if named is None:
        return []
    return mail.notify(
        workspace_id=handoff.workspace_id,
        from_agent_id=handoff.from_agent_id,
        recipient=named,
        subject=f"{in_quotes(handoff.title)} is for you",
        body=f"{handoff.from_agent_id} hands work to you. "
        f"Take it with handoff_claim(handoff_id={handoff.handoff_id!r}), or handoff_reject it.",
        moment=moment,
    )


def _notify_creator(handoff: Handoff, agent_id: str, outcome: str, text: str | None, moment: datetime) -> list[str]:
    if handoff.from_agent_id == agent_id:
        return []
    quoted = "" if text is None else f"\n\n{text[:RESULT_IN_NOTICE]}{'…' if len(text) > RESULT_IN_NOTICE else ''}"
    return mail.notify(
        workspace_id=handoff.workspace_id,
        from_agent_id=agent_id,
        recipient=handoff.from_agent_id,
        subject=f"{in_quotes(handoff.title)} was {outcome}",
        body=f"{agent_id} {outcome} {handoff.handoff_id}; handoff_get has the whole outcome.{quoted}",
        moment=moment,
    )


def _record(handoff: Handoff, what: str, actor: str | None, moment: datetime, **more: str | None) -> Event:
    told = {name: getattr(handoff, name) for name in ("handoff_id", "title", "target", "visibility")}
    return emit(
        workspace_id=handoff.workspace_id,
        stream=STREAM,
        type=f"handoff.{what}",
        actor=actor,
        payload={**told, **more},
        moment=moment,
        visibility=handoff.visibility,
        target=handoff.target,
        handoff_id=handoff.handoff_id,
    )
