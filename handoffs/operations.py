"""What this app offers: handing work over so that exactly one agent takes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

import handoffs.shared_md  # noqa: F401  # contributes its section
from coordination import debts
from coordination.debts import DebtRow, debt_row
from coordination.errors import CoordinationCode
from coordination.guards import in_session
from coordination.models import Event
from coordination.parameters import IN_WORKSPACE, ClientId, ProjectRoot, SessionId, SessionSecret
from coordination.rows import Duplicate
from coordination.services import workspaces
from coordination.toolset import COORDINATION, operation
from core.clock import iso, now
from core.operations.caller import Caller
from core.operations.errors import Code
from core.operations.parameters import MAX_INTEGER, Id, Limit, Params, parse_cursor
from core.operations.registry import OPERATORS_ONLY, Wait
from core.operations.shapes import Time
from handoffs import progress, remarks, selectors, services, work
from handoffs.errors import HandoffCode
from handoffs.leases import LONGEST, SHORTEST
from handoffs.models import STREAM, Handoff, HandoffStatus
from handoffs.rows import HandoffRow, HandoffState, OfferRow, RemarkRow, handoff_row, offer_row, remark_row
from handoffs.titles import MAX_TITLE

DEFAULT_LIMIT, MAX_LIMIT = 100, 500
MAX_DEADLINE = 365 * 86_400  # seconds

OF_ONE = (*IN_WORKSPACE, Code.NOT_FOUND, CoordinationCode.WORKSPACE_MISMATCH, Code.NOT_OWNER)
SETTLING = (*OF_ONE, Code.CONTENT_TOO_LARGE, Code.INVALID_TRANSITION)

COORDINATION.administered_in("handoffs.administration")


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
        Field(description="Who sees it: public, the whole workspace; else whom the target admits."),
    ]
    payload: Annotated[Any, Field(description="The work: a string, or any JSON kept as its text.")] = None
    title: Annotated[
        str | None, Field(min_length=1, max_length=MAX_TITLE, description="What it is, in a line; else the payload's.")
    ] = None
    task_id: Annotated[
        int | None, Field(ge=1, le=MAX_INTEGER, description="The planned task it carries, of the open cycle.")
    ] = None
    deadline_seconds: Annotated[
        int | None, Field(ge=1, le=MAX_DEADLINE, description="It expires unless somebody has it by then.")
    ] = None
    verifier: Annotated[
        Any,
        Field(
            description='Who says whether the result counts: "creator", "operator", {"agent_id":"…"} or {"role":"…"}; '
            "never who did it."
        ),
    ] = None
    session_id: Id | None = None
    client_id: ClientId = None


class CreatedHandoff(TypedDict):
    handoff_id: str
    workspace_id: str
    status: HandoffState
    created_at: Time
    notified: NotRequired[Annotated[list[str], Field(description="Whose inbox has a notice of it.")]]
    eligible_count: NotRequired[Annotated[int, Field(description="How many agents a pool target admits.")]]
    warning: NotRequired[str]
    duplicate: NotRequired[Duplicate]


@operation(
    HandoffCreate,
    *IN_WORKSPACE,
    Code.NOT_FOUND,
    Code.NOT_OWNER,
    Code.CONTENT_TOO_LARGE,
    CoordinationCode.QUOTA_EXCEEDED,
    acts_as="from_agent_id",
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
        client_id=p.client_id,
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
    return data


class HandoffListAvailable(Params):
    project_root: ProjectRoot
    agent_id: Id
    cursor: Annotated[str | int | None, Field(description="next_cursor of the page before.")] = None
    limit: Annotated[Limit | None, Field(description=f"{DEFAULT_LIMIT} by default, {MAX_LIMIT} at most.")] = None
    timeout_seconds: Annotated[
        float | None, Field(ge=0, description="Wait so long at most; the server caps it, at 30 by default.")
    ] = None
    ready_only: Annotated[bool, Field(description="Leave out those whose planned task cannot begin yet.")] = False


def _handoff_events(p: HandoffListAvailable) -> Callable[[Event], bool]:
    workspace_id = workspaces.locate(p.project_root).workspace_id
    streams = {STREAM, *work.streams()} if p.ready_only else {STREAM}

    def interested(event: Event) -> bool:
        return event.stream in streams and event.workspace_id == workspace_id

    return interested


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
    services.record_expiries(workspaces.locate(p.project_root).workspace_id)
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
    return {
        "handoffs": [offer_row(handoff) for handoff in page.handoffs],
        "next_cursor": page.next_cursor,
        "has_more": page.next_cursor is not None,
        "timed_out": False,
    }


class HandoffRef(Params):
    project_root: ProjectRoot
    handoff_id: Id
    agent_id: Id


class HandoffTrusted(HandoffRef):
    session_id: SessionId = None
    session_secret: SessionSecret = None


class HandoffClaim(HandoffTrusted):
    lease_seconds: Annotated[int | None, Field(ge=SHORTEST, le=LONGEST, description="How long it lasts unrenewed.")] = (
        None
    )


class ClaimedHandoff(TypedDict):
    handoff_id: str
    workspace_id: str
    status: HandoffState
    claimed_by: str | None
    lease_expires_at: Time | None
    payload: str | None


@operation(
    HandoffClaim,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    HandoffCode.NOT_ELIGIBLE_TO_CLAIM,
    HandoffCode.HANDOFF_ALREADY_CLAIMED,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
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
        "payload": handoff.payload,
    }


class HandoffComplete(HandoffTrusted):
    result: Annotated[Any, Field(description="The outcome: a string, or any JSON kept as its text.")] = None


class SettledHandoff(TypedDict):
    handoff_id: str
    status: HandoffState
    notified: NotRequired[Annotated[list[str], Field(description="Whose inbox has the outcome.")]]


@operation(
    HandoffComplete,
    *SETTLING,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
)
def handoff_complete(p: HandoffComplete, caller: Caller) -> SettledHandoff:
    """Finish a handoff you claimed; result goes to its creator, or first to its verifier (SUBMITTED)."""
    ended = services.complete(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, result=p.result
    )
    return _outcome(p.handoff_id, ended.status, ended.notified)


class HeldHandoff(TypedDict):
    handoff_id: str
    status: HandoffState
    lease_expires_at: Time | None
    notified: NotRequired[list[str]]


def _held(handoff: Handoff, notified: list[str] | None = None) -> HeldHandoff:
    held: HeldHandoff = {
        "handoff_id": handoff.handoff_id,
        "status": str(handoff.status),
        "lease_expires_at": iso(handoff.lease_expires_at),
    }
    if notified:
        held["notified"] = notified
    return held


@operation(
    HandoffTrusted,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    idempotent=True,
)
def handoff_start(p: HandoffTrusted, caller: Caller) -> HeldHandoff:
    """Say that you work on a handoff you claimed, or go on after handoff_block."""
    return _held(progress.start(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id))


class HandoffBlock(HandoffTrusted):
    reason: str


@operation(HandoffBlock, *SETTLING, acts_as="agent_id", guards=(in_session("session_id"),), idempotent=True)
def handoff_block(p: HandoffBlock, caller: Caller) -> HeldHandoff:
    """Say why you cannot go on; its creator is told, you keep it."""
    handoff, notified = progress.block(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason
    )
    return _held(handoff, notified)


class HandoffExtend(HandoffTrusted):
    seconds: Annotated[int | None, Field(ge=SHORTEST, le=LONGEST, description="From now; none: a whole lease.")] = None


@operation(HandoffExtend, *OF_ONE, Code.INVALID_TRANSITION, acts_as="agent_id", guards=(in_session("session_id"),))
def handoff_extend(p: HandoffExtend, caller: Caller) -> HeldHandoff:
    """Keep a handoff for a stretch in which nothing is heard of you."""
    return _held(
        progress.extend(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, seconds=p.seconds)
    )


@operation(HandoffTrusted, *OF_ONE, Code.INVALID_TRANSITION, acts_as="agent_id", guards=(in_session("session_id"),))
def handoff_accept(p: HandoffTrusted, caller: Caller) -> SettledHandoff:
    """As its verifier: a submitted result counts."""
    notified = progress.accept(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id)
    return _outcome(p.handoff_id, HandoffStatus.COMPLETED, notified)


class HandoffReturn(HandoffTrusted):
    reasons: str


@operation(HandoffReturn, *SETTLING, acts_as="agent_id", guards=(in_session("session_id"),))
def handoff_return(p: HandoffReturn, caller: Caller) -> SettledHandoff:
    """As its verifier: it does not count yet; who did it has it again."""
    notified = progress.send_back(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reasons=p.reasons
    )
    return _outcome(p.handoff_id, HandoffStatus.CLAIMED, notified)


class HandoffWithReason(HandoffTrusted):
    reason: Annotated[str | None, Field(description="Why, for the record and the creator.")] = None


@operation(
    HandoffWithReason,
    *SETTLING,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    destructive=True,
)
def handoff_reject(p: HandoffWithReason, caller: Caller) -> SettledHandoff:
    """Refuse, for good, a handoff you claimed, or an open one whose direct target you are."""
    notified = services.reject(
        project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason
    )
    return _outcome(p.handoff_id, HandoffStatus.REJECTED, notified)


@operation(
    HandoffWithReason,
    *SETTLING,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    destructive=True,
)
def handoff_cancel(p: HandoffWithReason, caller: Caller) -> SettledHandoff:
    """Retract an open handoff you created."""
    services.cancel(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id, reason=p.reason)
    return _outcome(p.handoff_id, HandoffStatus.CANCELLED, [])


class HandoffMine(Params):
    agent_id: Id
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None


class MyHandoff(TypedDict):
    handoff_id: str
    title: str
    status: HandoffState
    from_agent_id: str
    project_root: str
    lease_expires_at: Time | None
    lease_seconds_left: int
    blocked_reason: str | None


class Mine(TypedDict):
    handoffs: list[MyHandoff]
    owes: Annotated[list[DebtRow], Field(description="What else you took and have not brought: mail, tasks.")]


@operation(HandoffMine, *IN_WORKSPACE, Code.NOT_OWNER, acts_as="agent_id", read_only=True)
def handoff_mine(p: HandoffMine, caller: Caller) -> Mine:
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
        "lease_expires_at": iso(handoff.lease_expires_at),
        "lease_seconds_left": int((handoff.lease_expires_at - moment).total_seconds()),
        "blocked_reason": handoff.blocked_reason,
    }


class HandoffList(Params):
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None
    status: Annotated[
        Literal[
            "OPEN",
            "CLAIMED",
            "IN_PROGRESS",
            "BLOCKED",
            "SUBMITTED",
            "COMPLETED",
            "REJECTED",
            "CANCELLED",
            "EXPIRED",
        ]
        | None,
        Field(description="Those in this state, newest first; none: those that are not settled, oldest first."),
    ] = None
    limit: Annotated[Limit, Field(description=f"{MAX_LIMIT} at most.")] = DEFAULT_LIMIT


class KnownHandoff(HandoffRow):
    project_root: str


class HandoffPage(TypedDict):
    handoffs: list[KnownHandoff]


class ReadHandoff(KnownHandoff):
    outcome: selectors.Outcome | None
    remarks: list[RemarkRow]


@operation(HandoffList, *IN_WORKSPACE, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def handoff_list(p: HandoffList, caller: Caller) -> HandoffPage:
    """Handoffs as they count now, of any workspace or of one: a claim that has lapsed is no claim."""
    workspace_id = None if p.project_root is None else workspaces.locate(p.project_root).workspace_id
    rows = selectors.listed(workspace_id=workspace_id, status=p.status, limit=min(p.limit, MAX_LIMIT))
    return {"handoffs": [_whole(handoff) for handoff in rows]}


class HandoffId(Params):
    handoff_id: Id


@operation(HandoffId, Code.VALIDATION_ERROR, Code.NOT_FOUND, guards=(OPERATORS_ONLY,), tool=False, read_only=True)
def handoff_read(p: HandoffId, caller: Caller) -> ReadHandoff:
    """Any handoff of any workspace, as an operator: the work, and what came of it (by whom, when, result or reason)."""
    handoff = selectors.found(p.handoff_id)
    return {**_whole(handoff), "outcome": selectors.outcome(handoff), "remarks": _remarks(handoff)}


def _whole(handoff: Handoff) -> KnownHandoff:
    return {**handoff_row(handoff, now()), "project_root": handoff.workspace.root_realpath}


class HandoffWithdraw(Params):
    handoff_id: Id
    reason: str | None = None


@operation(
    HandoffWithdraw,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    Code.INVALID_TRANSITION,
    guards=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
)
def handoff_withdraw(p: HandoffWithdraw, caller: Caller) -> SettledHandoff:
    """Retract any open handoff, in any workspace, as an operator. A claimed one is its claimant's until the lease
    lapses."""
    assert caller.operator is not None
    services.withdraw(handoff_id=p.handoff_id, reason=p.reason, operator=caller.operator)
    return _outcome(p.handoff_id, HandoffStatus.CANCELLED, [])


class HandoffProlong(HandoffId):
    seconds: Annotated[int | None, Field(ge=SHORTEST, le=LONGEST, description="From now; none: a whole lease.")] = None


@operation(
    HandoffProlong,
    Code.VALIDATION_ERROR,
    Code.NOT_FOUND,
    Code.INVALID_TRANSITION,
    guards=(OPERATORS_ONLY,),
    tool=False,
)
def handoff_prolong(p: HandoffProlong, caller: Caller) -> HeldHandoff:
    """Let whoever holds a handoff keep it for longer, as an operator."""
    assert caller.operator is not None
    return _held(progress.prolong(handoff_id=p.handoff_id, seconds=p.seconds, operator=caller.operator))


@operation(
    HandoffId, Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.INVALID_TRANSITION, guards=(OPERATORS_ONLY,), tool=False
)
def handoff_approve(p: HandoffId, caller: Caller) -> SettledHandoff:
    """Say that a submitted handoff counts, as an operator, whoever verifies it."""
    assert caller.operator is not None
    notified = progress.approve(handoff_id=p.handoff_id, operator=caller.operator)
    return _outcome(p.handoff_id, HandoffStatus.COMPLETED, notified)


class HandoffSendBack(HandoffId):
    reasons: str


@operation(
    HandoffSendBack,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    Code.INVALID_TRANSITION,
    guards=(OPERATORS_ONLY,),
    tool=False,
)
def handoff_send_back(p: HandoffSendBack, caller: Caller) -> SettledHandoff:
    """Return a submitted handoff to who did it, as an operator, whoever verifies it."""
    assert caller.operator is not None
    notified = progress.send_back_as_operator(handoff_id=p.handoff_id, reasons=p.reasons, operator=caller.operator)
    return _outcome(p.handoff_id, HandoffStatus.CLAIMED, notified)


def _outcome(handoff_id: str, status: str, notified: list[str]) -> SettledHandoff:
    settled: SettledHandoff = {"handoff_id": handoff_id, "status": str(status)}
    if notified:
        settled["notified"] = notified
    return settled


class WholeHandoff(HandoffRow):
    remarks: Annotated[list[RemarkRow], Field(description="Late results, returned ones, and why they were.")]


@operation(HandoffRef, *OF_ONE, acts_as="agent_id", read_only=True)
def handoff_get(p: HandoffRef, caller: Caller) -> WholeHandoff:
    """One handoff with its status, claimant, payload, outcome and remarks."""
    handoff = services.get(project_root=p.project_root, handoff_id=p.handoff_id, agent_id=p.agent_id)
    return {**handoff_row(handoff, now()), "remarks": _remarks(handoff)}


def _remarks(handoff: Handoff) -> list[RemarkRow]:
    return [remark_row(remark) for remark in remarks.of(handoff)]
