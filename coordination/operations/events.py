"""Operations that read and follow the event log."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from coordination.config import CoordinationSettings
from coordination.errors import CoordinationCode
from coordination.log import selectors
from coordination.log.emit import streams
from coordination.parameters import ProjectRoot
from coordination.rows import EventRow, event_row
from coordination.services import agents, workspaces
from coordination.toolset import operation
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Cursor, FieldErrors, Id, Label, Limit, Params, Terse
from nexus.core.operations.registry import Wait

DEFAULT_EVENT_LIMIT = 100


def _declared(stream: str) -> str:
    if stream not in streams():
        raise ValueError(f"must be one of {', '.join(streams())}")
    return stream


def _name_the_streams(schema: dict[str, Any]) -> None:
    schema["enum"] = list(streams())
    schema["description"] = "; ".join(f"{name}: {holds}" for name, holds in streams().items()) + "."


StreamName = Annotated[
    str,
    FieldErrors(absent=CoordinationCode.INVALID_STREAM, malformed=CoordinationCode.INVALID_STREAM, rank=1),
    AfterValidator(_declared),
    Terse(),  # nexus://reference/monitoring describes them
    Field(json_schema_extra=_name_the_streams),
]


class EventCursor(Params):
    project_root: ProjectRoot
    agent_id: Id
    stream: StreamName


class EventFilters(Params):
    """Equality, all of them."""

    type: Label | None = None
    agent_id: Label | None = None
    task_id: Label | None = None
    handoff_id: Label | None = None
    trace_id: Label | None = None


class EventGet(EventCursor):
    cursor: Annotated[Cursor | None, Field(description="Read after this event_id; none: from the start.")] = None
    limit: Annotated[Limit | None, Field(description=f"{DEFAULT_EVENT_LIMIT} by default, 1000 at most.")] = None
    filters: Annotated[EventFilters | None, Field(description="All must match exactly; agent_id is who acted.")] = None

    @property
    def chosen(self) -> dict[str, str]:
        """The filters that were given."""
        return self.filters.model_dump(exclude_none=True) if self.filters else {}


class EventWait(EventGet):
    timeout_seconds: Annotated[int | None, Field(description="Longest wait; the server allows 30 by default.")] = 0


EVENT_ERRORS = (
    CoordinationCode.WORKSPACE_REQUIRED,
    CoordinationCode.INVALID_STREAM,
    Code.VALIDATION_ERROR,
    CoordinationCode.WORKSPACE_UNRESOLVED,
)


class Head(TypedDict):
    cursor: int


@operation(EventCursor, *EVENT_ERRORS, acts_as="agent_id", read_only=True, quick=True)
def event_cursor(p: EventCursor, caller: Caller) -> Head:
    """The newest event_id of a stream, to follow from now on with event_get or event_wait."""
    workspace_id = workspaces.locate(p.project_root).workspace_id
    return {"cursor": selectors.newest_event_id(workspace_id=workspace_id, stream=p.stream)}


class EventPage(TypedDict):
    events: list[EventRow]
    next_cursor: int
    has_more: bool
    timed_out: bool


@operation(EventGet, *EVENT_ERRORS, acts_as="agent_id", read_only=True, quick=True)
def event_get(p: EventGet, caller: Caller) -> EventPage:
    """Read events after cursor, oldest first; go on from next_cursor. For observing; your mail comes by inbox_pull."""
    data = _events(p)
    agents.touch_after_read(p.agent_id)
    return data


@operation(
    EventWait,
    *EVENT_ERRORS,
    acts_as="agent_id",
    read_only=True,
    quick=True,
    wait=Wait[EventWait](
        timeout=lambda p: p.timeout_seconds or 0,
        interested=lambda p: selectors.event_interest(
            workspaces.locate(p.project_root).workspace_id, p.stream, p.agent_id, p.chosen
        ),
        look=lambda p, caller: _events(p),
        done=lambda data: bool(data["events"]),
        unfinished=lambda data: bool(data["has_more"]),
        expired=lambda p, data: {
            **data,
            "timed_out": True,
            # A snapshot has read this far, and so has a wait that timed out before the end of the log.
            **({"next_cursor": p.cursor or 0} if (p.timeout_seconds or 0) > 0 and not data["has_more"] else {}),
        },
        resume=lambda p, data: p.model_copy(update={"cursor": data["next_cursor"]}),
        past=lambda p, event_id: p.model_copy(update={"cursor": max(p.cursor or 0, event_id)}),
    ),
)
def event_wait(p: EventWait, caller: Caller) -> EventPage:
    """Like event_get, but timeout_seconds > 0 waits for the first matching event. timed_out: none came."""
    return event_get(p, caller)


def _events(p: EventGet) -> EventPage:
    page = selectors.event_page(
        workspace_id=workspaces.locate(p.project_root).workspace_id,
        agent_id=p.agent_id,
        stream=p.stream,
        cursor=p.cursor or 0,
        limit=min(p.limit or DEFAULT_EVENT_LIMIT, CoordinationSettings.current().max_event_limit),
        filters=p.chosen,
    )
    return {
        "events": [event_row(event) for event in page.events],
        "next_cursor": page.next_cursor,
        "has_more": page.has_more,
        "timed_out": False,
    }
