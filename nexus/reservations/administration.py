"""Operators' operations on reservations; they are not tools for agents."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from coordination.parameters import IN_WORKSPACE, ProjectRoot
from coordination.services import workspaces
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import MAX_ID, Id, Limit, Params, not_blank
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.reservations import selectors, services
from nexus.reservations.operations import MOST_IDS, Paths, ReservationRow, reservation_row
from nexus.reservations.toolset import operation

DEFAULT_LIMIT, MAX_LIMIT = 100, 500


class FilesList(Params):
    project_root: Annotated[ProjectRoot | None, Field(description="Only this project's.")] = None
    agent_id: Annotated[Id | None, Field(description="Only this agent's.")] = None
    ended: Annotated[
        bool, Field(description="Ended reservations, newest first. Without this flag: the held ones, oldest first.")
    ] = False
    search: Annotated[str, Field(max_length=MAX_ID, description="Part of a pattern, a reason or a holder.")] = ""
    limit: Annotated[Limit, Field(description=f"{MAX_LIMIT} at most.")] = DEFAULT_LIMIT


class KnownReservation(ReservationRow):
    project_root: str
    refused: Annotated[list[services.Refusal], Field(description="Whose commit or push the guard refused for it.")]


class Reservations(TypedDict):
    reservations: list[KnownReservation]


@operation(FilesList, *IN_WORKSPACE, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def files_list(p: FilesList, caller: Caller) -> Reservations:
    """List the reservations of all projects or of one."""
    rows = selectors.list_reservations(
        workspace_id=None if p.project_root is None else workspaces.locate(p.project_root).workspace_id,
        agent_id=p.agent_id,
        ended=p.ended,
        search=p.search.strip(),
        limit=min(p.limit, MAX_LIMIT),
    )
    return {
        "reservations": [
            {**reservation_row(row), "project_root": row.workspace.root_realpath, "refused": row.refused}
            for row in rows
        ]
    }


class FilesEnd(Params):
    reservation_id: Id
    reason: Annotated[str | None, Field(description="The reason, for the log and the holder.")] = None


class OneReservation(TypedDict):
    reservation: ReservationRow


@operation(
    FilesEnd,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    Code.INVALID_TRANSITION,
    requires=(OPERATORS_ONLY,),
    tool=False,
    destructive=True,
)
def files_end(p: FilesEnd, caller: Caller) -> OneReservation:
    """End any agent's reservation, in any project, as an operator. Its holder gets a message."""
    ended = services.take_away(reservation_id=p.reservation_id, reason=p.reason, operator=operator_behind(caller))
    return {"reservation": reservation_row(ended)}


class Guarded(Params):
    reservation_ids: Annotated[list[Id], Field(min_length=1, max_length=MOST_IDS)]
    paths: Annotated[Paths, Field(description="What is changed, below its work tree.")]


class FilesOverride(Guarded):
    verb: Annotated[Literal["commit", "push"], Field(description="What was done.")]
    reason: Annotated[str, Field(description="Why."), AfterValidator(not_blank)]


class ToldHolders(TypedDict):
    holders: list[str]


@operation(
    FilesOverride,
    Code.VALIDATION_ERROR,
    Code.CONTENT_TOO_LARGE,
    Code.NOT_FOUND,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def files_override(p: FilesOverride, caller: Caller) -> ToldHolders:
    """Record that a person commits or pushes over what agents hold; the holders get a message."""
    holders = services.record_override(
        reservation_ids=p.reservation_ids, paths=p.paths, verb=p.verb, reason=p.reason, operator=operator_behind(caller)
    )
    return {"holders": holders}


class FilesRecordRefusal(Guarded):
    verb: Annotated[Literal["commit", "push"], Field(description="What was refused.")]
    agent_id: Annotated[Id | None, Field(description="The agent that was refused. Without it: a person.")] = None
    passed: Annotated[bool, Field(description="It was not refused: it was made past the guard.")] = False


class RecordedRefusals(TypedDict):
    reservation_ids: Annotated[list[str], Field(description="Those for which the agent was not refused before.")]


@operation(FilesRecordRefusal, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, idempotent=True)
def files_record_refusal(p: FilesRecordRefusal, caller: Caller) -> RecordedRefusals:
    """Record that the guard refused a commit or a push of what agents hold, or that one was made past it, so that
    operators see it: once for each reservation and agent, 20 agents at most."""
    new = services.record_refusal(
        reservation_ids=p.reservation_ids,
        paths=p.paths,
        verb=p.verb,
        agent_id=p.agent_id,
        passed=p.passed,
        operator=operator_behind(caller),
    )
    return {"reservation_ids": [row.reservation_id for row in new]}


class FilesDismissRefusals(Params):
    reservation_id: Id


@operation(FilesDismissRefusals, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def files_dismiss_refusals(p: FilesDismissRefusals, caller: Caller) -> OneReservation:
    """Hide that the guard refused commits for a reservation, until it refuses another agent's."""
    row = services.dismiss_refusals(reservation_id=p.reservation_id, operator=operator_behind(caller))
    return {"reservation": reservation_row(row)}
