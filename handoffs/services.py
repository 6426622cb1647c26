"""Create, claim, complete, reject and cancel handoffs. Each is one transaction with exactly one winner, under the names
of the workspace, which all that it reads belongs to, and of the agent, whose limits and leases it reads.

The steps between claim and completion are in `progress`, verdicts in `verdicts`, and what operators alone do in
`operator_actions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from coordination import selectors as agents_known
from coordination.errors import check_claim
from coordination.ids import new_id
from coordination.models import Event
from coordination.routing import Strategy, parse_target
from coordination.selectors import require_agent
from coordination.services import agents, retries, tags, workspaces
from coordination.services.agent_limits import exceeded, limit
from handoffs import check_runs, checks, leases, lifecycle, notices, progress, remarks, selectors, sql
from handoffs.leases import expire, record_expiries
from handoffs.lifecycle import HandoffCode, named_agent
from handoffs.models import (
    SETTLED,
    CheckRun,
    Dependency,
    Handoff,
    HandoffStatus,
    RemarkKind,
    single_line,
    title_of,
)
from handoffs.transitions import By, find_handoff, record, refresh_plan, settle_handoff, work
from nexus.core.clock import iso, now
from nexus.core.database.sql import insert
from nexus.core.database.store import store, write
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.size_limits import opaque_text


class Ended(NamedTuple):
    """The new state of a handoff, and whom a notice of it reached."""

    status: str
    notified: list[str]


class Created(NamedTuple):
    """A new handoff, whom a notice reached, and how many agents its target admits (None for a direct target)."""

    handoff: Handoff
    notified: list[str]
    eligible_count: int | None
    duplicate: bool = False  # created before, with the same client_id


# What a call says; the title may be the payload's, and the deadline is counted from the first call.
QUOTA_RETRY_SECONDS = 60.0  # when to look again whether somebody took one
CONTENT = ("workspace_id", "title", "target", "visibility", "payload", "task_id", "verifier", "trace_id",
           "acceptance_criteria")  # fmt: skip


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
    acceptance_criteria: Sequence[str] | None = None,
    depends_on: Sequence[str] = (),
    trace_id: str | None = None,
    client_id: str | None = None,
    proof: str | None = None,
) -> Created:
    """Create an OPEN handoff, which expires when nobody claims it within `deadline_seconds`. It is offered once all
    that it depends on is completed. What has criteria beside its checks and names no verifier is verified by its
    creator, whom `proof` proves. If its creator already made one with the same client_id, return that one as it is now.

    Raises VALIDATION_ERROR (missing or malformed target, malformed verifier, a check that nobody reviewed, a dependency
    that came to nothing),
    WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, QUOTA_EXCEEDED, WORKSPACE_MISMATCH for a dependency of another workspace,
    and NOT_FOUND for a direct target or a verifier that is not registered, for a task that the open cycle does not have
    and for a dependency.
    """
    parsed = parse_target(target)
    if parsed is None:
        raise invalid('target is required, such as {"strategy": "capability", "capability": "ocr"}.', field="target")
    criteria = checks.parse(acceptance_criteria)
    verified_by = checks.verifier_of(verifier, criteria)
    tags.check_target(parsed)
    project, moment = workspaces.locate(project_root), now()
    text = opaque_text(payload, "payload")
    with write(project.workspace_id, from_agent_id):
        handoff = Handoff(
            handoff_id=new_id("hnd"),
            workspace_id=project.workspace_id,
            from_agent_id=from_agent_id,
            title=single_line(title or "") or title_of(text, parsed),
            target=parsed,
            visibility=visibility,
            payload=text,
            task_id=task_id,
            deadline_at=None if deadline_seconds is None else moment + timedelta(seconds=deadline_seconds),
            verifier=verified_by,
            acceptance_criteria=list(acceptance_criteria) if acceptance_criteria else None,
            trace_id=trace_id,
            client_id=client_id,
            proof=proof,
            created_at=moment,
            updated_at=moment,
        )
        if first := retries.made_before(
            handoff, maker=("from_agent_id",), same=CONTENT, beside={"depends_on": set(depends_on)}, as_made=_as_made
        ):
            agents.touch(from_agent_id, moment)
            return Created(selectors.with_current_status(first, moment), [], None, duplicate=True)
        _check_open(from_agent_id, moment)
        checks.verify_names(criteria, project.workspace_id)
        workspaces.ensure(project, moment)
        if parsed["strategy"] == Strategy.DIRECT:
            require_agent(parsed["agent_id"])
        named = named_agent(verified_by)
        if named is not None:
            require_agent(named)
        dependencies = _dependencies(handoff, depends_on, moment)
        handoff.task_key = None if task_id is None else work().find(project.workspace_id, task_id)
        waits_for = {"depends_on": [each.depends_on_id for each in dependencies]} if dependencies else {}
        # Late, because other writers' events wait from here to the commit.
        event = record(handoff, "created", from_agent_id, moment, True, **waits_for)
        handoff.created_event_id = event.event_id
        with store().batch():
            insert(handoff)
            insert(*dependencies)
            notified = notices.offered(handoff, moment) if all(each.done for each in dependencies) else []
            agents.touch(from_agent_id, moment)
    return Created(handoff, notified, None if parsed["strategy"] == Strategy.DIRECT else _count_eligible(handoff))


def _dependencies(handoff: Handoff, depends_on: Sequence[str], moment: datetime) -> list[Dependency]:
    """Return the dependencies of a new handoff, inside the transaction that creates it. It can name only handoffs that
    exist, so there are no cycles.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, VALIDATION_ERROR for one that can never be completed.
    """
    if not depends_on:
        return []
    rows = Handoff.objects.filter(pk__in=depends_on).defer("payload", "result")
    found = {row.handoff_id: row for row in rows}
    made = []
    for each in dict.fromkeys(depends_on):
        if each not in found:
            raise not_found("handoff", each)
        if found[each].workspace_id != handoff.workspace_id:
            raise workspaces.mismatch("handoff", each)
        status = selectors.state_at(found[each], moment)
        done = status == HandoffStatus.COMPLETED
        if status in SETTLED and not done:
            raise invalid(f"{each} is {status}: nothing can wait for it.", field="depends_on")
        made.append(Dependency(handoff=handoff, depends_on=found[each], done=done))
    return made


def _as_made(handoff: Handoff) -> dict[str, Any]:
    """Return the target and the dependencies that a handoff was created with: an operator may have reassigned it, or
    offered again what it waits for."""
    payload = Event.objects.filter(pk=handoff.created_event_id).values_list("payload", flat=True).first() or {}
    waits_for = payload.get("depends_on") or [each.handoff_id for each in selectors.dependencies(handoff)]
    return {"depends_on": set(waits_for), **({"target": payload["target"]} if payload else {})}


def _count_eligible(handoff: Handoff) -> int:
    """Count the registered agents that the target admits now, without those that a fallback admits later."""
    return agents_known.count_admitted(handoff.target, handoff.created_at)


def claim(*, project_root: str, handoff_id: str, agent_id: str, lease_seconds: int | None = None) -> Handoff:
    """Claim an OPEN handoff with leases of `lease_seconds`. One conditional update lets exactly one claimant win.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, NOT_ELIGIBLE_TO_CLAIM, INVALID_TRANSITION (its deadline passed),
    HANDOFF_ALREADY_CLAIMED.
    """
    project = workspaces.locate(project_root)
    expire(project.workspace_id)
    moment = now()
    seconds = leases.seconds(lease_seconds)
    lease = moment + timedelta(seconds=seconds)
    refresh_plan(project, handoff_id)
    with write(project.workspace_id, agent_id):
        handoff = find_handoff(project.workspace_id, handoff_id)
        if not selectors.eligible(handoff, agents_known.profile_of(agent_id), moment):
            raise NexusError(
                HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
                "The target of this handoff does not admit you.",
                {"handoff_id": handoff_id},
            )
        won = {"handoff_id": handoff_id, "workspace_id": project.workspace_id, "agent_id": agent_id}
        if not sql.claim(**won, lease_seconds=seconds, lease=lease, moment=moment):
            if handoff.status == HandoffStatus.OPEN and (left := selectors.unfinished(handoff)):
                raise NexusError(
                    HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
                    f"This handoff waits until {', '.join(left[:5])} are completed.",
                    {"handoff_id": handoff_id, "waits_for": left},
                )
            if selectors.state_at(handoff, moment) == HandoffStatus.EXPIRED:
                lifecycle.step("claim", HandoffStatus.EXPIRED, frozenset())
            raise _not_open_error(handoff, agent_id)
        handoff.status, handoff.claimed_by, handoff.lease_expires_at = HandoffStatus.CLAIMED, agent_id, lease
        handoff.claim_epoch += 1
        record(handoff, "claimed", agent_id, moment, claimed_by=agent_id, claim_epoch=handoff.claim_epoch)
        if handoff.task_key is not None:
            work().started(handoff.task_key, project, agent_id, moment)
        with store().batch():
            agents.touch(agent_id, moment)
    return handoff


def _not_open_error(handoff: Handoff, agent_id: str) -> NexusError:
    """Return the error for a handoff that is not open. Agents that its target admits learn who holds it."""
    until = iso(handoff.lease_expires_at)
    if until is None:
        what = "Look for others with handoff_list_available."
    elif handoff.claimed_by == agent_id:
        what = f"You have it yourself, until {until}: go on with it."
    else:
        what = (
            f"{handoff.claimed_by} has it until {until}, or longer while it is at work; look for others with "
            "handoff_list_available."
        )
    return NexusError(
        HandoffCode.HANDOFF_ALREADY_CLAIMED,
        f"This handoff is {handoff.status} already. {what}",
        {
            "handoff_id": handoff.handoff_id,
            "status": handoff.status,
            "claimed_by": handoff.claimed_by,
            "lease_expires_at": until,
        },
    )


def complete(
    *, project_root: str, handoff_id: str, agent_id: str, result: Any, claim_epoch: int | None = None
) -> Ended:
    """Complete a handoff that the agent holds, or submit its result to its checks and the verifier that it names.

    A former holder whose lease expired is refused, and its result is kept as a remark; one that acts under the same id
    as the holder is known by its `claim_epoch`.
    Raises WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, NOT_FOUND, WORKSPACE_MISMATCH, STALE_CLAIM, INVALID_TRANSITION,
    NOT_OWNER.
    """
    project, moment = workspaces.locate(project_root), now()
    text = opaque_text(result, "result")
    refresh_plan(project, handoff_id)
    with write(project.workspace_id, agent_id):
        handoff = find_handoff(project.workspace_id, handoff_id)
        submits = handoff.verifier is not None or checks.tests(handoff.acceptance_criteria)
        verb = "submit" if submits else "complete"
        try:
            check_claim(claim_epoch, handoff.claim_epoch, "handoff")
            status = lifecycle.step(verb, handoff.status, selectors.parts(handoff, agent_id))
        except NexusError as refusal:
            lost = remarks.lost_claim(handoff, agent_id, claim_epoch)
            ended: Ended | NexusError = (
                refusal if lost is None else _refused(handoff, agent_id, refusal, lost, text, moment)
            )
        else:
            finish(handoff, status, agent_id, project, text, moment)
            with store().batch():
                notified = _notify_of_end(handoff, status, agent_id, text, moment)
                agents.touch(agent_id, moment)
            ended = Ended(status, notified)
    if isinstance(ended, NexusError):
        raise ended  # after the commit, which keeps the remark
    return ended


def finish(
    handoff: Handoff,
    status: str,
    agent_id: str,
    project: workspaces.ProjectDirectory,
    result: str | None,
    moment: datetime,
) -> None:
    """Store the result and offer what waited for it, inside the transaction."""
    settle_handoff(handoff, status, moment, result=result)
    if status == HandoffStatus.SUBMITTED:
        record(handoff, "submitted", agent_id, moment)
        if checks.tests(handoff.acceptance_criteria):
            run = CheckRun(handoff_id=handoff.handoff_id, claim_epoch=handoff.claim_epoch)
            check_runs.request(run, moment)
        return
    record(handoff, "completed", agent_id, moment)
    notices.unblocked(handoff, agent_id, moment)
    if handoff.task_key is not None:
        work().completed(handoff.task_key, project, agent_id, moment)


def _notify_of_end(handoff: Handoff, status: str, agent_id: str, result: str | None, moment: datetime) -> list[str]:
    """Notify whoever waits for a result, inside the transaction; a verifier only once its checks have passed."""
    if status != HandoffStatus.SUBMITTED:
        return notices.ended(handoff, agent_id, "completed", result, moment)
    if checks.tests(handoff.acceptance_criteria):
        return []
    return notices.submitted(handoff, agent_id, result, moment)


def _refused(
    handoff: Handoff, agent_id: str, refusal: NexusError, lost: remarks.LostClaim, result: str | None, moment: datetime
) -> NexusError:
    """Return the refusal of a former holder's result, inside the transaction. The result is kept as a remark."""
    kept = remarks.add_remark(handoff, agent_id, RemarkKind.LATE_RESULT, result, moment)
    if kept is remarks.Stored.NEW:
        record(handoff, "remarked", agent_id, moment)
    return remarks.explained(refusal, handoff, agent_id, lost, moment, kept)


def reject(handoff_id: str, by: By, reason: str | None) -> list[str]:
    """Reject a handoff that the agent holds or is the direct target of; return whom the notice reached.

    Raises as `complete` does.
    """
    with progress.on_handoff(handoff_id, by, reason=reason, expires=False, moves_task=True) as handoff:
        moment = now()
        status = progress.next_status("reject", handoff, by, moment)
        settle_handoff(handoff, status, moment, rejected_reason=reason)
        record(handoff, "rejected", by.agent_id, moment, reason=reason)
        if handoff.task_key is not None and handoff.claimed_by is not None:
            project = workspaces.directory_of(handoff.workspace)
            work().returned(handoff.task_key, project, by.agent_id, by.agent_id, moment)
        return notices.ended(handoff, by.agent_id, "rejected", reason, moment)


def cancel(handoff_id: str, by: By, reason: str | None) -> None:
    """Cancel an open handoff that the agent created, or as an operator any. A claimed one stays with its holder until
    the lease expires.

    Raises WORKSPACE_UNRESOLVED, CONTENT_TOO_LARGE, NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER, INVALID_TRANSITION.
    """
    with progress.on_handoff(handoff_id, by, reason=reason) as handoff:
        moment = now()
        parts = {lifecycle.Party.OPERATOR} if by.operator else selectors.parts(handoff, by.agent_id)
        settle_handoff(handoff, lifecycle.step("cancel", handoff.status, parts), moment)
        record(handoff, "cancelled", by.actor, moment, reason=reason, **by.event_fields)


def get(*, project_root: str, handoff_id: str, agent_id: str) -> Handoff:
    """Return one handoff to its creator, its claimant, or an agent that its visibility admits.

    Raises NOT_FOUND, WORKSPACE_MISMATCH, NOT_OWNER.
    """
    project = workspaces.locate(project_root)
    record_expiries(project.workspace_id)
    handoff = selectors.with_current_status(find_handoff(project.workspace_id, handoff_id), now())
    if agent_id != handoff.claimed_by and not selectors.visible(handoff, agents_known.profile_of(agent_id), now()):
        raise NexusError(Code.NOT_OWNER, "This handoff is not visible to you.", {"handoff_id": handoff_id})
    return handoff


def _check_open(creator: str, moment: datetime) -> None:
    """Check the limit on a creator's open handoffs, inside the writing transaction. Raises QUOTA_EXCEEDED."""
    most = limit("open_handoffs", creator)
    if not most:
        return  # before the query, which costs a call a fifth even where it is only put together
    open_ones = Handoff.objects.in_state(HandoffStatus.OPEN, moment).filter(from_agent_id=creator)
    if (used := open_ones.count()) >= most:
        raise exceeded(
            "open_handoffs",
            f"{used} handoffs of yours wait to be taken; an operator allows {most}. This one was not created: wait, or "
            "retract one with handoff_cancel.",
            limit=most,
            used=used,
            retry_after=QUOTA_RETRY_SECONDS,
        )
