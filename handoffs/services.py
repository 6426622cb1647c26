"""The verbs of handoffs: create, claim, complete, reject, cancel. One transaction each, exactly one winner.

What happens between claiming and completing stands in `progress`.
"""

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
from core.clock import iso, now
from core.database import store, write
from core.database.prepared import Lookup, Select, Slot, Update, insert
from core.limits import opaque_text, within_limit
from core.operations.caller import OPERATOR_AGENT
from core.operations.errors import Code, NexusError, invalid, not_found
from handoffs import lifecycle, quotas, remarks, selectors
from handoffs.config import HandoffSettings
from handoffs.errors import HandoffCode
from handoffs.models import STREAM, Handoff, HandoffStatus, RemarkKind
from handoffs.titles import in_a_line, in_quotes, title_of
from handoffs.verification import OPERATOR, named_agent, parse_verifier
from handoffs.work import work
from inbox import services as mail

TOLD_OF_ONE = 20  # agents that a notice asks for their verdict
RESULT_IN_NOTICE = 2000  # characters of a result that its notice quotes; handoff_get has it whole

_by_id = Select(lambda: Handoff.objects.filter(pk=Slot("handoff_id")))
_task_of = Lookup(Handoff.objects.all, column="task_key")
_due = Select(
    lambda: Handoff.objects.filter(
        Q(lease_expires_at__lt=Slot("moment")) | Q(status=HandoffStatus.OPEN, deadline_at__lt=Slot("moment")),
        workspace_id=Slot("workspace_id"),
    ).values_list("pk")
)
_overdue = Select(
    lambda: Handoff.objects.open().filter(workspace_id=Slot("workspace_id"), deadline_at__lt=Slot("moment"))
)
_take = Update(
    lambda: Handoff.objects.open().filter(
        Q(deadline_at=None) | Q(deadline_at__gte=Slot("moment")),
        pk=Slot("handoff_id"),
        workspace_id=Slot("workspace_id"),
    ),
    status=HandoffStatus.CLAIMED,
    claimed_by=Slot("agent_id"),
    claimed_at=Slot("moment"),
    lease_seconds=Slot("lease_seconds"),
    lease_expires_at=Slot("lease"),
    updated_at=Slot("moment"),
)
_time_out = Update(
    lambda: Handoff.objects.open().filter(pk=Slot("handoff_id"), deadline_at__lt=Slot("moment")),
    status=HandoffStatus.EXPIRED,
    updated_at=Slot("moment"),
)
_end = Update(
    lambda: Handoff.objects.filter(
        Q(claimed_by=Slot("claimed_by")) | Q(claimed_by=None), pk=Slot("handoff_id"), status=Slot("former")
    ),
    status=Slot("status"),
    result=Slot("result"),
    rejected_reason=Slot("rejected_reason"),
    blocked_reason=None,
    lease_expires_at=None,
    updated_at=Slot("moment"),
)


class Ended(NamedTuple):
    """The state that a handoff came to, and whom a notice of it reached."""

    status: str
    notified: list[str]


class Created(NamedTuple):
    """A new handoff, whom a notice reached, and how many agents a pool target admits (None for a direct one)."""

    handoff: Handoff
    notified: list[str]
    eligible_count: int | None
    duplicate: bool = False  # created before, with the same client_id


# What a call says; the title may be the payload's, and the deadline is counted from the first call.
CONTENT = ("workspace_id", "title", "target", "visibility", "payload", "task_id", "verifier")


def create(
    *,
    project_root: str,
    from_agent_id: str,
    target: Any,
    visibility: str,
    payload: Any,
    task_id: int | None = None,
    title: str | None = None,
    deadline_seconds: int | None = None,
    verifier: Any = None,
    client_id: str | None = None,
) -> Created:
    """Create an OPEN handoff, which expires when nobody has it `deadline_seconds` from now; one that its creator made
    with the same client_id before is answered as it is now.

    Raises VALIDATION_ERROR (missing or malformed target, malformed verifier), WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE,
    QUOTA_EXCEEDED, and NOT_FOUND for a direct target or a verifier that is no registered agent, and for a task that the
    open cycle has not.
    """
    parsed = parse_target(target)
    if parsed is None:
        raise invalid('target is required, such as {"strategy": "capability", "capability": "ocr"}.', field="target")
    verified_by = parse_verifier(verifier)
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
            deadline_at=None if deadline_seconds is None else moment + timedelta(seconds=deadline_seconds),
            verifier=verified_by,
            client_id=client_id,
            created_at=moment,
            updated_at=moment,
        )
        if first := retries.made_before(handoff, maker=("from_agent_id",), same=CONTENT, as_made=_as_made):
            agents.touch(from_agent_id, moment)
            return Created(selectors.as_counts(first, moment), [], None, duplicate=True)
        quotas.check_open(from_agent_id, moment)
        workspaces.ensure(place, moment)
        if parsed["strategy"] == Strategy.DIRECT and not agent_exists(parsed["agent_id"]):
            raise not_found("agent", parsed["agent_id"])
        named = named_agent(verified_by)
        if named is not None and not agent_exists(named):
            raise not_found("agent", named)
        handoff.task_key = None if task_id is None else work().find(place.workspace_id, task_id)
        event = record(handoff, "created", from_agent_id, moment)
        handoff.created_event_id = event.event_id
        insert(handoff)
        notified = notify_target(handoff, moment)
        agents.touch(from_agent_id, moment)
    return Created(handoff, notified, None if parsed["strategy"] == Strategy.DIRECT else _count_eligible(handoff))


def _as_made(handoff: Handoff) -> dict[str, Any]:
    """What a handoff was created for: an operator may have reassigned it since."""
    told = Event.objects.filter(pk=handoff.created_event_id).values_list("payload", flat=True).first()
    return {"target": told["target"]} if told else {}


def claim(*, project_root: str, handoff_id: str, agent_id: str, lease_seconds: int | None = None) -> Handoff:
    """Take an OPEN handoff, for `lease_seconds` at a time; of many that try, one conditional update lets one win.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, NOT_ELIGIBLE_TO_CLAIM, INVALID_TRANSITION (its deadline passed),
    HANDOFF_ALREADY_CLAIMED.
    """
    place = workspaces.locate(project_root)
    expire(place.workspace_id)
    moment = now()
    seconds = HandoffSettings.current().handoff_lease_ttl_seconds if lease_seconds is None else lease_seconds
    lease = moment + timedelta(seconds=seconds)
    refresh_plan(place, handoff_id)
    with write():
        handoff = find(place.workspace_id, handoff_id)
        if not selectors.eligible(handoff, agents_known.profile_of(agent_id), moment):
            raise NexusError(
                HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
                "The target of this handoff does not admit you.",
                {"handoff_id": handoff_id},
            )
        won = {"handoff_id": handoff_id, "workspace_id": place.workspace_id, "agent_id": agent_id}
        if not _take(**won, lease_seconds=seconds, lease=lease, moment=moment):
            if selectors.state_at(handoff, moment) == HandoffStatus.EXPIRED:
                lifecycle.step("claim", HandoffStatus.EXPIRED, frozenset())
            raise NexusError(
                HandoffCode.HANDOFF_ALREADY_CLAIMED,
                f"This handoff is {handoff.status} already; look for others with handoff_list_available.",
                {"handoff_id": handoff_id, "status": handoff.status},
            )
        handoff.status, handoff.claimed_by, handoff.lease_expires_at = HandoffStatus.CLAIMED, agent_id, lease
        record(handoff, "claimed", agent_id, moment, claimed_by=agent_id)
        if handoff.task_key is not None:
            work().started(handoff.task_key, place, agent_id, moment)
        agents.touch(agent_id, moment)
    return handoff


def complete(*, project_root: str, handoff_id: str, agent_id: str, result: Any) -> Ended:
    """Finish a handoff one holds with its result, or submit it to the verifier that it names.

    A former holder whose lease lapsed is refused, and what it brings is kept as a remark.
    Raises WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, NOT_FOUND, WORKSPACE_MISMATCH, INVALID_TRANSITION, NOT_OWNER.
    """
    place, moment = workspaces.locate(project_root), now()
    text = opaque_text(result, "result")
    refresh_plan(place, handoff_id)
    with write():
        handoff = find(place.workspace_id, handoff_id)
        verb = "complete" if handoff.verifier is None else "submit"
        try:
            status = lifecycle.step(verb, handoff.status, selectors.parts(handoff, agent_id))
        except NexusError as refusal:
            ended: Ended | NexusError = _refused(handoff, agent_id, refusal, text, moment)
        else:
            ended = Ended(status, _finish(handoff, status, agent_id, place, text, moment))
            agents.touch(agent_id, moment)
    if isinstance(ended, NexusError):
        raise ended  # after the commit, which keeps the remark
    return ended


def _finish(
    handoff: Handoff, status: str, agent_id: str, place: workspaces.Place, result: str | None, moment: datetime
) -> list[str]:
    """Inside the transaction: the result stands, and who waits for it is told; whom the notice reached."""
    settle(handoff, status, moment, result=result)
    if status == HandoffStatus.SUBMITTED:
        record(handoff, "submitted", agent_id, moment)
        return _notify_verifiers(handoff, agent_id, result, moment)
    record(handoff, "completed", agent_id, moment)
    if handoff.task_key is not None:
        work().completed(handoff.task_key, place, agent_id, moment)
    return _notify_creator(handoff, agent_id, "completed", result, moment)


def _refused(handoff: Handoff, agent_id: str, refusal: NexusError, result: str | None, moment: datetime) -> NexusError:
    """Inside the transaction: the refusal of a result, which is kept where its bringer did have the handoff."""
    lost = remarks.lost_claim(handoff, agent_id)
    if lost is None:
        return refusal
    kept = remarks.keep(handoff, agent_id, RemarkKind.LATE_RESULT, result, moment)
    if kept is remarks.Kept.NEW:
        record(handoff, "remarked", agent_id, moment)
    return remarks.explained(refusal, handoff, lost, moment, kept)


def reject(*, project_root: str, handoff_id: str, agent_id: str, reason: str | None) -> list[str]:
    """Refuse a handoff one holds or is the direct target of; whom the notice reached.

    Raises as `complete` does.
    """
    place, moment = workspaces.locate(project_root), now()
    within_limit(reason, "reason")
    refresh_plan(place, handoff_id)
    with write():
        handoff = find(place.workspace_id, handoff_id)
        settle(handoff, remarks.step("reject", handoff, agent_id, moment), moment, rejected_reason=reason)
        record(handoff, "rejected", agent_id, moment, reason=reason)
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
    expire(place.workspace_id)
    moment = now()
    with write():
        handoff = find(place.workspace_id, handoff_id)
        settle(handoff, lifecycle.step("cancel", handoff.status, selectors.parts(handoff, agent_id)), moment)
        record(handoff, "cancelled", agent_id, moment, reason=reason)
        agents.touch(agent_id, moment)


def withdraw(*, handoff_id: str, reason: str | None, operator: str) -> Handoff:
    """Retract any open handoff, as an operator; one that is claimed is its claimant's until the lease lapses.

    Raises CONTENT_TOO_LARGE, NOT_FOUND, INVALID_TRANSITION.
    """
    within_limit(reason, "reason")
    handoff = Handoff.objects.filter(pk=handoff_id).first()
    if handoff is None:
        raise not_found("handoff", handoff_id)
    expire(handoff.workspace_id)
    moment = now()
    with write():
        handoff.refresh_from_db()
        settle(handoff, lifecycle.step("cancel", handoff.status, {lifecycle.Part.OPERATOR}), moment)
        record(handoff, "cancelled", None, moment, reason=reason, operator=operator)
    return handoff


def get(*, project_root: str, handoff_id: str, agent_id: str) -> Handoff:
    """One handoff, for its creator, its claimant and whoever its visibility admits.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER.
    """
    place = workspaces.locate(project_root)
    record_expiries(place.workspace_id)
    handoff = selectors.as_counts(find(place.workspace_id, handoff_id), now())
    if agent_id != handoff.claimed_by and not selectors.visible(handoff, agents_known.profile_of(agent_id), now()):
        raise NexusError(Code.NOT_OWNER, "This handoff is not visible to you.", {"handoff_id": handoff_id})
    return handoff


def expire(workspace_id: str) -> None:
    """Record what time did in a workspace, with an event each: handoffs whose lease has lapsed open again, and open
    ones whose deadline has passed expire.

    A plain read decides whether there is anything to do: what only looks must not take the writer's lock.
    """
    if _due.first(workspace_id=workspace_id, moment=now()) is None:
        return
    with write():
        moment = now()
        for handoff in Handoff.objects.lapsed(moment).filter(workspace_id=workspace_id):
            _reopen(handoff, moment)
        for handoff in _overdue(workspace_id=workspace_id, moment=moment):
            if _time_out(handoff_id=handoff.handoff_id, moment=moment):
                record(handoff, "timed_out", None, moment)
                _tell_of_timeout(handoff, moment)


def _reopen(handoff: Handoff, moment: datetime) -> None:
    """Inside a transaction: a handoff whose lease lapsed is open again, unless it was renewed meanwhile."""
    former, lapsed_at = handoff.claimed_by, handoff.lease_expires_at
    lapsed = Handoff.objects.lapsed(moment).filter(pk=handoff.pk)
    opened = {"status": HandoffStatus.OPEN, "claimed_by": None, "claimed_at": None, "lease_seconds": None}
    if not lapsed.update(**opened, lease_expires_at=None, blocked_reason=None, updated_at=moment):
        return
    record(handoff, "expired", None, moment, claimed_by=former, lapsed_at=iso(lapsed_at))
    if handoff.task_key is not None:
        work().returned(handoff.task_key, workspaces.place_of(handoff.workspace), former, None, moment)


def record_expiries(workspace_id: str) -> None:
    """`expire` beside a read: not while a writer holds the store. What time did is shown meanwhile all the same."""
    with store().without_waiting():
        try:
            expire(workspace_id)
        except OperationalError:
            return  # whoever writes next records it


def expire_everywhere() -> None:
    """`expire` in every workspace: for a reaper in the background."""
    moment = now()
    overdue = Handoff.objects.open().filter(deadline_at__lt=moment)
    due = (Handoff.objects.lapsed(moment), overdue)
    for workspace_id in {found for rows in due for found in rows.values_list("workspace_id", flat=True)}:
        expire(workspace_id)


def refresh_plan(place: workspaces.Place, handoff_id: str) -> None:
    """Before the transaction of a step that moves the task of a handoff, where it carries one."""
    if _task_of(handoff_id) is not None:
        work().refresh(place)


def find(workspace_id: str, handoff_id: str) -> Handoff:
    handoff = _by_id.first(handoff_id=handoff_id)
    if handoff is None:
        raise not_found("handoff", handoff_id)
    if handoff.workspace_id != workspace_id:
        raise workspaces.mismatch("handoff", handoff_id)
    return handoff


def settle(
    handoff: Handoff,
    status: str,
    moment: datetime,
    *,
    result: str | None = None,
    rejected_reason: str | None = None,
) -> None:
    """Inside a transaction: from the state that was checked to one without a lease; who is open has no claimant, by
    constraint. Raises INVALID_TRANSITION where it is not in that state any more."""
    ended = _end(
        handoff_id=handoff.handoff_id,
        former=handoff.status,
        claimed_by=handoff.claimed_by or "",
        status=str(status),
        result=result,
        rejected_reason=rejected_reason,
        moment=moment,
    )
    if not ended:
        raise changed_meanwhile()


def changed_meanwhile() -> NexusError:
    """The error for a step from a state that is no longer."""
    return NexusError(Code.INVALID_TRANSITION, "The handoff changed meanwhile; look at it with handoff_get.")


def _named_agent(target: Target) -> str | None:
    """The agent that a directed target names."""
    directed = target["strategy"] in (Strategy.DIRECT, Strategy.DIRECT_WITH_FALLBACK)
    return target["agent_id"] if directed else None


def _count_eligible(handoff: Handoff) -> int:
    """The registered agents that the target admits now; whom a fallback admits later does not count."""
    return sum(selectors.eligible(handoff, agent, handoff.created_at) for agent in agents_known.profiles())


def notify_target(handoff: Handoff, moment: datetime) -> list[str]:
    """Inside a transaction: tell the agent that a directed target names; whom the notice reached."""
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
    return mail.notify(
        workspace_id=handoff.workspace_id,
        from_agent_id=agent_id,
        recipient=handoff.from_agent_id,
        subject=f"{in_quotes(handoff.title)} was {outcome}",
        body=f"{agent_id} {outcome} {handoff.handoff_id}; handoff_get has the whole outcome.{_quoted(text)}",
        moment=moment,
    )


def _quoted(text: str | None) -> str:
    return "" if text is None else f"\n\n{text[:RESULT_IN_NOTICE]}{'…' if len(text) > RESULT_IN_NOTICE else ''}"


def tell(handoff: Handoff, sender: str, recipient: str, what: str, body: str, moment: datetime) -> list[str]:
    """Inside a transaction: a notice of what happened to a handoff; whom it reached. Nobody is told of its own act."""
    if recipient == sender:
        return []
    return mail.notify(
        workspace_id=handoff.workspace_id,
        from_agent_id=sender,
        recipient=recipient,
        subject=f"{in_quotes(handoff.title)} {what}",
        body=body,
        moment=moment,
    )


def _notify_verifiers(handoff: Handoff, agent_id: str, result: str | None, moment: datetime) -> list[str]:
    body = (
        f"{agent_id} did it; whether it counts is yours to say: "
        f"handoff_accept(handoff_id={handoff.handoff_id!r}), or handoff_return with reasons.{_quoted(result)}"
    )
    to = verifiers(handoff)
    return [name for each in to for name in tell(handoff, agent_id, each, "waits for your verdict", body, moment)]


def verifiers(handoff: Handoff) -> list[str]:
    """The agents that may verify a handoff now, of a role only the first few; operators have one inbox."""
    if handoff.verifier == OPERATOR:
        return [OPERATOR_AGENT]
    agents = [agent.agent_id for agent in agents_known.profiles() if selectors.verifies(handoff, agent)]
    return agents[:TOLD_OF_ONE]


def _tell_of_timeout(handoff: Handoff, moment: datetime) -> None:
    body = (
        "Nobody had it when its deadline passed. Offer it anew with handoff_create, with another target or more time."
    )
    mail.notify(
        workspace_id=handoff.workspace_id,
        from_agent_id=handoff.from_agent_id,
        recipient=handoff.from_agent_id,
        subject=f"{in_quotes(handoff.title)} expired",
        body=body,
        moment=moment,
    )


def record(handoff: Handoff, what: str, actor: str | None, moment: datetime, **more: str | None) -> Event:
    """Inside a transaction: an event of a handoff, `handoff.<what>`."""
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
