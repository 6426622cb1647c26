"""What operators alone do with handoffs. Each is a conditional update from the state that the operator saw: of two that
act at once, the second gets an error that the handoff changed meanwhile."""

from __future__ import annotations

from copy import copy
from datetime import datetime
from typing import Any

from coordination.ids import new_id
from coordination.models import Event
from coordination.routing import Strategy, describe
from coordination.selectors import require_agent
from coordination.services import workspaces
from handoffs import lifecycle, notices, progress, selectors
from handoffs.models import HELD, Dependency, Handoff, in_quotes
from handoffs.transitions import UNCLAIMED, By, changed_meanwhile, record, work
from nexus.core.clock import now
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError

OPERATOR = frozenset({lifecycle.Party.OPERATOR})


def release(*, handoff_id: str, reason: str | None, operator: str) -> Handoff:
    """Take a handoff from its holder and notify it; the handoff is open again for its target.

    Raises CONTENT_TOO_LARGE, NOT_FOUND, INVALID_TRANSITION.
    """
    with progress.on_handoff(handoff_id, By(operator=operator), reason=reason) as handoff:
        moment = now()
        former = _open_again(handoff, "release", moment)
        record(handoff, "released", None, moment, claimed_by=former.claimed_by, reason=reason, operator=operator)
        _notify_holder(former, "was taken back from you", reason, moment, KEPT)
    return handoff


def reassign(*, handoff_id: str, agent_id: str, reason: str | None, operator: str) -> Handoff:
    """Open a handoff for one agent alone, and notify that agent and the former holder. A deadline counts anew.

    It is not claimed for the agent, because the lease would run before the agent has looked.
    Raises CONTENT_TOO_LARGE, NOT_FOUND (handoff, agent), INVALID_TRANSITION.
    """
    with progress.on_handoff(handoff_id, By(operator=operator), reason=reason) as handoff:
        require_agent(agent_id)
        moment = now()
        until = _deadline_anew(handoff, moment)
        former = _open_again(handoff, "reassign", moment, alone=agent_id, deadline_at=until)
        record(handoff, "reassigned", None, moment, claimed_by=former.claimed_by, reason=reason, operator=operator)
        if former.claimed_by != agent_id:
            _notify_holder(former, f"was given to {agent_id}", reason, moment)
        if not selectors.unfinished(handoff):
            notices.offered(handoff, moment)
    return handoff


def _deadline_anew(handoff: Handoff, moment: datetime) -> datetime | None:
    """Return the deadline of a handoff that gets all of its time once more."""
    if handoff.deadline_at is None:
        return None
    given = Event.objects.filter(handoff_id=handoff.pk, type="handoff.reassigned").order_by("-event_id").first()
    return moment + (handoff.deadline_at - (given.created_at if given else handoff.created_at))


def reoffer(*, handoff_id: str, agent_id: str | None, operator: str) -> Handoff:
    """Offer the work of a rejected, cancelled or expired handoff again, to the same target or to an agent: a new
    handoff, which waits for what the former one waited for. What waited for the former one waits for it.

    Raises NOT_FOUND (handoff, agent); INVALID_TRANSITION where it is live, completed, or was offered again already.
    """
    with progress.on_handoff(handoff_id, By(operator=operator)) as former:
        moment = now()
        lifecycle.step("reoffer", former.status, OPERATOR)
        if agent_id is not None:
            require_agent(agent_id)
        again = Event.objects.filter(handoff_id=handoff_id, type="handoff.reoffered").first()
        if again is not None:
            raise NexusError(
                Code.INVALID_TRANSITION,
                f"{in_quotes(former.title)} was offered again already{_as_it_is(again.payload['as'], moment)}.",
                {"status": former.status, "as": again.payload["as"]},
            )
        handoff = Handoff(
            handoff_id=new_id("hnd"),
            workspace_id=former.workspace_id,
            from_agent_id=former.from_agent_id,
            title=former.title,
            target={"strategy": Strategy.DIRECT.value, "agent_id": agent_id} if agent_id else former.target,
            visibility=former.visibility,
            payload=former.payload,
            task_id=former.task_id,
            task_key=former.task_key,
            verifier=former.verifier,
            trace_id=former.trace_id,
            acceptance_criteria=former.acceptance_criteria,
            created_at=moment,
            updated_at=moment,
        )
        created = record(handoff, "created", handoff.from_agent_id, moment, of=handoff_id, operator=operator)
        handoff.created_event_id = created.event_id
        handoff.save(force_insert=True)
        waits_for = Dependency.objects.filter(handoff=former).order_by("pk").values("depends_on_id", "done")
        Dependency.objects.bulk_create(Dependency(handoff=handoff, **each) for each in waits_for)
        Dependency.objects.filter(depends_on=former).update(depends_on=handoff)
        record(former, "reoffered", None, moment, **{"as": handoff.handoff_id}, operator=operator)
        if not selectors.unfinished(handoff):
            notices.offered(handoff, moment)
    return handoff


def _as_it_is(handoff_id: str, moment: datetime) -> str:
    """Describe to whom a handoff is offered and what became of it, as the end of a sentence; empty for one that was
    pruned."""
    handoff = Handoff.objects.filter(pk=handoff_id).first()
    if handoff is None:
        return ""
    state = selectors.state_at(handoff, moment).lower().replace("_", " ")
    holder = f", with {handoff.claimed_by}" if handoff.claimed_by else ""
    return f" to {describe(handoff.target, spoken=True)[:200]}, and is {state}{holder}"


def _open_again(handoff: Handoff, verb: str, moment: datetime, *, alone: str | None = None, **columns: Any) -> Handoff:
    """Open a handoff, whoever holds it, perhaps for one agent `alone`; return it as it was. Call it inside a
    transaction."""
    former = copy(handoff)
    status = lifecycle.step(verb, handoff.status, OPERATOR)
    if alone is not None:
        columns["target"] = {"strategy": Strategy.DIRECT.value, "agent_id": alone}
    holder = former.claimed_by or former.released_from
    if alone in (None, holder):
        columns["released_from"] = holder
    if "deadline_at" not in columns and handoff.deadline_at is not None and handoff.deadline_at < moment:
        columns["deadline_at"] = None  # somebody had it by then; it would expire as soon as it is open
    _update(handoff, status=status, updated_at=moment, **{**UNCLAIMED, **columns})
    if former.status in HELD and handoff.task_key is not None:
        project = workspaces.directory_of(handoff.workspace)
        work().returned(handoff.task_key, project, former.claimed_by, None, moment)
    return former


def _update(handoff: Handoff, **columns: Any) -> None:
    """Save a handoff, unless another process changed it first."""
    same = Handoff.objects.filter(pk=handoff.pk, status=handoff.status, updated_at=handoff.updated_at)
    if not same.update(**columns):
        raise changed_meanwhile()
    for name, value in columns.items():
        setattr(handoff, name, value)


KEPT = "The files that you reserved for it stay yours until their lease ends, or another agent claims it."


def _notify_holder(handoff: Handoff, what: str, reason: str | None, moment: datetime, more: str = "") -> None:
    if handoff.status in HELD and handoff.claimed_by is not None:
        body = "\n\n".join(filter(None, [f"An operator decided so.{f' {reason}' if reason else ''}", more]))
        notices.notify(handoff, handoff.claimed_by, what, body, moment, by=OPERATOR_AGENT)
