"""The operations of handoffs: offer work, take it, bring it, and read what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination import activity, debts
from coordination.debts import DebtRow, debt_row
from coordination.errors import CoordinationCode
from coordination.log.selectors import interest_keys
from coordination.parameters import (
    IN_WORKSPACE,
    ClaimEpoch,
    ClientId,
    ProjectRoot,
    SessionId,
    SessionSecret,
    in_session,
)
from coordination.provenance import OnBehalfOf, on_behalf_of, proof_of, provenance_row
from coordination.rows import Duplicate
from coordination.services import workspaces
from coordination.toolset import operation
from handoffs import check_runs, progress, remarks, selectors, services, transitions, verdicts
from handoffs.check_runs import Checked
from handoffs.leases import LONGEST, SHORTEST, record_expiries
from handoffs.lifecycle import HandoffCode
from handoffs.models import MAX_TITLE, STREAM, Handoff, HandoffStatus
from handoffs.parameters import Criteria, Verifier
from handoffs.rows import HandoffRow, HandoffState, OfferRow, RemarkRow, handoff_row, offer_row, remark_row
from handoffs.transitions import By
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import MAX_INTEGER, Id, Limit, Params, ShownAs, Terse, Time, parse_cursor
from nexus.core.operations.registry import Wait
from nexus.core.waiting import Interest

DEFAULT_LIMIT, MAX_LIMIT = 100, 500  # of a list
OF_ONE = (*IN_WORKSPACE, Code.NOT_FOUND, CoordinationCode.WORKSPACE_MISMATCH, Code.NOT_OWNER)
STEP = (*OF_ONE, Code.INVALID_TRANSITION, CoordinationCode.STALE_CLAIM)
SETTLING = (*STEP, Code.CONTENT_TOO_LARGE)

Stretch = Annotated[int | None, Field(ge=SHORTEST, le=LONGEST, description="Seconds from now; default: a whole lease.")]


class HandoffRef(Params):
    project_root: ProjectRoot
    handoff_id: Id
    agent_id: Id


class HandoffTrusted(HandoffRef):
    session_id: SessionId = None
    session_secret: SessionSecret = None

    @property
    def by(self) -> By:
        """Who takes the step."""
        return By(self.agent_id, self.project_root)


class HandoffStep(HandoffTrusted):
    claim_epoch: ClaimEpoch = None

    @property
    def by(self) -> By:
        """Who takes the step, for which claim."""
        return By(self.agent_id, self.project_root, self.claim_epoch)


class SettledHandoff(TypedDict):
    handoff_id: str
    status: HandoffState
    notified: NotRequired[Annotated[list[str], Field(description="Agents whose inbox got the outcome.")]]


def outcome(handoff_id: str, status: str, notified: list[str]) -> SettledHandoff:
    settled: SettledHandoff = {"handoff_id": handoff_id, "status": str(status)}
    if notified:
        settled["notified"] = notified
    return settled


class HeldHandoff(TypedDict):
    handoff_id: str
    status: HandoffState
    lease_expires_at: Time | None
    claim_epoch: int
    notified: NotRequired[list[str]]


def held_handoff(handoff: Handoff, notified: list[str] | None = None) -> HeldHandoff:
    held: HeldHandoff = {
        "handoff_id": handoff.handoff_id,
        "status": str(handoff.status),
        "lease_expires_at": iso(handoff.lease_expires_at),
        "claim_epoch": handoff.claim_epoch,
    }
    if notified:
        held["notified"] = notified
    return held


def remarks_of(handoff: Handoff) -> list[RemarkRow]:
    return [remark_row(remark) for remark in remarks.of(handoff)]


MAX_DEADLINE = 365 * 86_400  # seconds
TEXT = {"type": "string"}


class HandoffCreate(Params):
    project_root: ProjectRoot
    from_agent_id: Annotated[Id, Field(description="You.")]
    target: Annotated[
        Any,
        Field(
            description='Who may claim: {"strategy":"capability","capability":"ocr"}, {"strategy":"role","role":"…"}, '
            '{"strategy":"broadcast"}; more: nexus://reference/targets.'
        ),
    ]
    visibility: Annotated[
        Literal["private", "eligible", "public"],
        Field(description='As a rule "public": all agents of the workspace see it; else only whom the target admits.'),
    ]
    payload: Annotated[Any, ShownAs(TEXT), Field(description="The work: a string, or any JSON kept as its text.")] = (
        None
    )
    title: Annotated[
        str | None,
        Field(min_length=1, max_length=MAX_TITLE, description="One line; default: the first line of the work."),
    ] = None
    task_id: Annotated[
        int | None, Field(ge=1, le=MAX_INTEGER, description="The task of the open cycle that it carries.")
    ] = None
    deadline_seconds: Annotated[
        int | None, Field(ge=1, le=MAX_DEADLINE, description="It expires if nobody has claimed it by then.")
    ] = None
    verifier: Verifier = None
    acceptance_criteria: Criteria = None
    depends_on: Annotated[list[Id] | None, Field(max_length=50, description="handoff_ids to be COMPLETED first.")] = (
        None
    )
    trace_id: Annotated[
        Id | None, Terse(), Field(description="By which you know what belongs together; its events repeat it.")
    ] = None
    session_id: SessionId = None
    session_secret: SessionSecret = None
    client_id: ClientId = None


class CreatedHandoff(TypedDict):
    handoff_id: str
    workspace_id: str
    status: HandoffState
    created_at: Time
    notified: NotRequired[Annotated[list[str], Field(description="Agents whose inbox got a notice.")]]
    eligible_count: NotRequired[Annotated[int, Field(description="How many agents the target admits.")]]
    warning: NotRequired[str]
    duplicate: NotRequired[Duplicate]


@operation(
    HandoffCreate,
    *IN_WORKSPACE,
    Code.NOT_FOUND,
    Code.NOT_OWNER,
    Code.CONTENT_TOO_LARGE,
    CoordinationCode.QUOTA_EXCEEDED,
    CoordinationCode.WORKSPACE_MISMATCH,
    acts_as="from_agent_id",
    requires=(in_session("session_id"),),
)
def handoff_create(p: HandoffCreate, caller: Caller) -> CreatedHandoff:
    """Offer work that exactly one of the agents the target admits will take. Its outcome comes to your inbox;
    handoff_get has it whole."""
    created = services.create(
        project_root=p.project_root,
        from_agent_id=p.from_agent_id,
        target=p.target,
        visibility=p.visibility,
        payload=p.payload,
        task_id=p.task_id,
        title=p.title,
        deadline_seconds=p.deadline_seconds,
        verifier=p.verifier,
        acceptance_criteria=p.acceptance_criteria,
        depends_on=p.depends_on or (),
        trace_id=p.trace_id,
        client_id=p.client_id,
        proof=proof_of(caller, p.session_secret),
    )
    data: CreatedHandoff = {
        "handoff_id": created.handoff.handoff_id,
        "workspace_id": created.handoff.workspace_id,
        "status": created.handoff.status,
        "created_at": iso(created.handoff.created_at),
    }
    if created.duplicate:
        data["duplicate"] = True
    if created.notified:
        data["notified"] = created.notified
    if created.eligible_count is not None:
        data["eligible_count"] = created.eligible_count
    if created.eligible_count == 0:
        data["warning"] = (
            "No registered agent matches the target yet. It stays open for later ones; handoff_cancel retracts it."
        )
    elif why := activity.why_it_waits(created.notified, now()):
        data["warning"] = why
    return data


class HandoffListAvailable(Params):
    project_root: ProjectRoot
    agent_id: Id
    cursor: Annotated[str | int | None, Field(description="next_cursor of the previous page.")] = None
    limit: Annotated[
        Limit | None,
        Field(description=f"{DEFAULT_LIMIT} by default, {MAX_LIMIT} at most; fewer where payloads are large."),
    ] = None
    timeout_seconds: Annotated[
        float | None, Field(ge=0, description="Longest wait; the server allows 30 by default.")
    ] = None
    ready_only: Annotated[bool, Field(description="Omit those whose task cannot start yet.")] = False


def _handoff_events(p: HandoffListAvailable) -> Interest:
    workspace_id = workspaces.locate(p.project_root).workspace_id
    streams = {STREAM, *transitions.streams()} if p.ready_only else {STREAM}
    return Interest(interest_keys([workspace_id], streams, p.agent_id), lambda event: True)


class OfferPage(TypedDict):
    handoffs: list[OfferRow]
    next_cursor: str | None
    has_more: bool
    timed_out: bool


@operation(
    HandoffListAvailable,
    *IN_WORKSPACE,
    acts_as="agent_id",
    read_only=True,
    wait=Wait[HandoffListAvailable](
        timeout=lambda p: p.timeout_seconds or 0,
        interested=_handoff_events,
        look=lambda p, caller: _available(p),
        done=lambda data: bool(data["handoffs"]),
        unfinished=lambda data: bool(data["has_more"]),
        resume=lambda p, data: p.model_copy(update={"cursor": data["next_cursor"]}) if data["has_more"] else p,
        expired=lambda p, data: {**data, "timed_out": bool(p.timeout_seconds)},
        next_change=lambda p: selectors.next_change(workspaces.locate(p.project_root).workspace_id),
    ),
)
def handoff_list_available(p: HandoffListAvailable, caller: Caller) -> OfferPage:
    """The open handoffs you may claim, payload included; timeout_seconds > 0 waits for one."""
    record_expiries(workspaces.locate(p.project_root).workspace_id)
    return _available(p)


def _available(p: HandoffListAvailable) -> OfferPage:
    after = parse_cursor(0 if p.cursor is None else p.cursor)
    workspace_id = workspaces.locate(p.project_root).workspace_id
    page = selectors.available(
        workspace_id=workspace_id,
        agent_id=p.agent_id,
        after=after,
        limit=min(p.limit or DEFAULT_LIMIT, MAX_LIMIT),
        ready_only=p.ready_only,
    )
    behalf = on_behalf_of(page.handoffs)
    return {
        "handoffs": [offer_row(handoff, behalf) for handoff in page.handoffs],
        "next_cursor": page.next_cursor,
        "has_more": page.next_cursor is not None,
        "timed_out": False,
    }


class HandoffClaim(HandoffTrusted):
    lease_seconds: Annotated[
        int | None, Field(ge=SHORTEST, le=LONGEST, description="How long it lasts without renewal.")
    ] = None


class ClaimedHandoff(TypedDict):
    handoff_id: str
    workspace_id: str
    status: HandoffState
    claimed_by: str | None
    lease_expires_at: Time | None
    claim_epoch: Annotated[int, Field(description="Names this claim in your later calls.")]
    payload: str | None


@operation(
    HandoffClaim,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
    HandoffCode.HANDOFF_ALREADY_CLAIMED,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
)
def handoff_claim(p: HandoffClaim, caller: Caller) -> ClaimedHandoff:
    """Take a handoff; one agent wins. Your heartbeats and acts renew the lease; once it lapses, others may take it."""
    handoff = services.claim(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, lease_seconds=p.lease_seconds
    )
    return {
        "handoff_id": handoff.handoff_id,
        "workspace_id": handoff.workspace_id,
        "status": handoff.status,
        "claimed_by": handoff.claimed_by,
        "lease_expires_at": iso(handoff.lease_expires_at),
        "claim_epoch": handoff.claim_epoch,
        "payload": handoff.payload,
    }


class HandoffComplete(HandoffStep):
    result: Annotated[
        Any, ShownAs({"type": "string"}), Field(description="The outcome: a string, or any JSON kept as its text.")
    ] = None


@operation(
    HandoffComplete,
    *SETTLING,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
)
def handoff_complete(p: HandoffComplete, caller: Caller) -> SettledHandoff:
    """Finish a handoff you claimed; result goes to checks, verifier (SUBMITTED), then its creator."""
    ended = services.complete(
        project_root=p.project_root,
        handoff_id=p.handoff_id,
        agent_id=p.agent_id,
        result=p.result,
        claim_epoch=p.claim_epoch,
    )
    return outcome(p.handoff_id, ended.status, ended.notified)


@operation(
    HandoffStep,
    *STEP,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    idempotent=True,
)
def handoff_start(p: HandoffStep, caller: Caller) -> HeldHandoff:
    """Say that you work on a handoff you claimed, or go on after handoff_block."""
    return held_handoff(progress.start(p.handoff_id, p.by))


class HandoffBlock(HandoffStep):
    reason: str


@operation(HandoffBlock, *SETTLING, acts_as="agent_id", requires=(in_session("session_id"),), idempotent=True)
def handoff_block(p: HandoffBlock, caller: Caller) -> HeldHandoff:
    """Say why you cannot go on; its creator gets a notice, and you keep it."""
    handoff, notified = progress.block(p.handoff_id, p.by, p.reason)
    return held_handoff(handoff, notified)


class HandoffExtend(HandoffStep):
    seconds: Stretch = None


@operation(HandoffExtend, *STEP, acts_as="agent_id", requires=(in_session("session_id"),))
def handoff_extend(p: HandoffExtend, caller: Caller) -> HeldHandoff:
    """Extend the lease of a handoff that you hold, before a long silence."""
    return held_handoff(progress.extend(p.handoff_id, p.by, p.seconds))


@operation(HandoffStep, *STEP, acts_as="agent_id", requires=(in_session("session_id"),))
def handoff_accept(p: HandoffStep, caller: Caller) -> SettledHandoff:
    """Accept a submitted handoff as its verifier: it is complete."""
    return outcome(p.handoff_id, HandoffStatus.COMPLETED, verdicts.accept(p.handoff_id, p.by))


class HandoffReturn(HandoffStep):
    reasons: str


@operation(HandoffReturn, *SETTLING, acts_as="agent_id", requires=(in_session("session_id"),))
def handoff_return(p: HandoffReturn, caller: Caller) -> SettledHandoff:
    """Return a submitted handoff, as its verifier, to the agent that did it."""
    return outcome(p.handoff_id, HandoffStatus.CLAIMED, verdicts.send_back(p.handoff_id, p.by, p.reasons))


class HandoffCancel(HandoffTrusted):
    reason: Annotated[str | None, Field(description="Why, for the record and the creator.")] = None


class HandoffReject(HandoffCancel, HandoffStep):
    pass


@operation(
    HandoffReject,
    *SETTLING,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    destructive=True,
)
def handoff_reject(p: HandoffReject, caller: Caller) -> SettledHandoff:
    """Refuse, for good, a handoff you claimed, or an open one whose direct target you are."""
    return outcome(p.handoff_id, HandoffStatus.REJECTED, services.reject(p.handoff_id, p.by, p.reason))


@operation(
    HandoffCancel,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    Code.CONTENT_TOO_LARGE,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    destructive=True,
)
def handoff_cancel(p: HandoffCancel, caller: Caller) -> SettledHandoff:
    """Retract an open handoff you created."""
    services.cancel(p.handoff_id, p.by, p.reason)
    return outcome(p.handoff_id, HandoffStatus.CANCELLED, [])


class HandoffMine(Params):
    agent_id: Id
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None


class MyHandoff(TypedDict):
    handoff_id: str
    title: str
    status: HandoffState
    from_agent_id: str
    project_root: str
    claim_epoch: int
    lease_expires_at: Time | None
    lease_seconds_left: int
    blocked_reason: str | None


class MyHandoffs(TypedDict):
    handoffs: list[MyHandoff]
    owes: Annotated[list[DebtRow], Field(description="What else you owe: mail, tasks, verdicts, answers.")]


@operation(HandoffMine, *IN_WORKSPACE, Code.NOT_OWNER, acts_as="agent_id", read_only=True)
def handoff_mine(p: HandoffMine, caller: Caller) -> MyHandoffs:
    """What you hold, and what else you owe."""
    moment = now()
    workspace_id = None if p.project_root is None else workspaces.locate(p.project_root).workspace_id
    held = selectors.held_by(p.agent_id, moment, workspace_id=workspace_id)
    owes = [debt for debt in debts.owed_by(p.agent_id) if debt.kind != "handoff"]
    return {
        "handoffs": [_mine(handoff, moment) for handoff in held],
        "owes": [debt_row(debt) for debt in owes if workspace_id in (None, debt.workspace_id)],
    }


def _mine(handoff: Handoff, moment: datetime) -> MyHandoff:
    assert handoff.lease_expires_at is not None, "what is held has a lease"
    return {
        "handoff_id": handoff.handoff_id,
        "title": handoff.title,
        "status": str(handoff.status),
        "from_agent_id": handoff.from_agent_id,
        "project_root": handoff.workspace.root_realpath,
        "claim_epoch": handoff.claim_epoch,
        "lease_expires_at": iso(handoff.lease_expires_at),
        "lease_seconds_left": int((handoff.lease_expires_at - moment).total_seconds()),
        "blocked_reason": handoff.blocked_reason,
    }


class DependencyRow(TypedDict):
    handoff_id: str
    status: HandoffState


class WholeHandoff(HandoffRow, Checked):
    on_behalf_of: NotRequired[OnBehalfOf]
    depends_on: Annotated[list[DependencyRow], Field(description="It is offered once all are COMPLETED.")]
    remarks: Annotated[list[RemarkRow], Field(description="Late results, and returned results with the reasons.")]


@operation(HandoffRef, *OF_ONE, acts_as="agent_id", read_only=True)
def handoff_get(p: HandoffRef, caller: Caller) -> WholeHandoff:
    """One handoff with its status, claimant, payload, outcome and remarks."""
    handoff = services.get(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id)
    moment = now()
    return {
        **handoff_row(handoff, moment),
        **provenance_row(handoff, on_behalf_of([handoff])),  # type: ignore[typeddict-item]  # which holds no other key
        "depends_on": [
            {"handoff_id": each.handoff_id, "status": selectors.state_at(each, moment)}
            for each in selectors.dependencies(handoff)
        ],
        "remarks": remarks_of(handoff),
        **check_runs.of_results(selectors.check_runs_of(handoff)),
    }
