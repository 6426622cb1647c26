"""Operations to offer work, and to find work to claim."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.guards import in_session
from coordination.log.selectors import interest_keys
from coordination.parameters import IN_WORKSPACE, ClientId, ProjectRoot, SessionId, SessionSecret
from coordination.rows import Duplicate
from coordination.services import workspaces
from coordination.toolset import operation
from handoffs import selectors, services, work
from handoffs.expiry import record_expiries
from handoffs.models import STREAM
from handoffs.operations.common import DEFAULT_LIMIT, MAX_LIMIT
from handoffs.rows import HandoffState, OfferRow, offer_row
from handoffs.titles import MAX_TITLE
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import MAX_INTEGER, Id, Limit, Params, Shown, parse_cursor
from nexus.core.operations.registry import Wait
from nexus.core.operations.schemas import Time
from nexus.core.waiting import Interest

MAX_DEADLINE = 365 * 86_400  # seconds
TEXT = {"type": "string"}
VERIFIER = {"anyOf": [TEXT, {
    "type": "object", "properties": {"agent_id": TEXT, "role": TEXT}, "additionalProperties": False,
}]}  # fmt: skip


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
    payload: Annotated[Any, Shown(TEXT), Field(description="The work: a string, or any JSON kept as its text.")] = None
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
        Shown(VERIFIER),
        Field(
            description='Who says whether the result counts: "creator", "operator", {"agent_id":"…"} or {"role":"…"}; '
            "never who did it."
        ),
    ] = None
    session_id: SessionId = None
    session_secret: SessionSecret = None
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
    guards=(in_session("session_id"),),
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
    limit: Annotated[
        Limit | None,
        Field(description=f"{DEFAULT_LIMIT} by default, {MAX_LIMIT} at most; fewer where payloads are large."),
    ] = None
    timeout_seconds: Annotated[
        float | None, Field(ge=0, description="Wait so long at most; the server caps it, at 30 by default.")
    ] = None
    ready_only: Annotated[bool, Field(description="Leave out those whose planned task cannot begin yet.")] = False


def _handoff_events(p: HandoffListAvailable) -> Interest:
    workspace_id = workspaces.locate(p.project_root).workspace_id
    streams = {STREAM, *work.streams()} if p.ready_only else {STREAM}
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
        deferrable=True,
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
    return {
        "handoffs": [offer_row(handoff) for handoff in page.handoffs],
        "next_cursor": page.next_cursor,
        "has_more": page.next_cursor is not None,
        "timed_out": False,
    }
