"""Operations that release and extend reservations, and show who holds files."""

from __future__ import annotations

from functools import partial
from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import IN_WORKSPACE, in_session
from coordination.services import workspaces
from nexus.core.clock import now
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Params
from nexus.reservations import selectors
from nexus.reservations.operations.common import MOST_IDS, OfAgent, Path, Paths, Seconds, SharedRoot, Trusted
from nexus.reservations.paths import pattern_of, shared_by
from nexus.reservations.rows import ReservationRow, reservation_row
from nexus.reservations.services import holding
from nexus.reservations.toolset import operation

OWN = (*IN_WORKSPACE, Code.NOT_OWNER, Code.NOT_FOUND, CoordinationCode.WORKSPACE_MISMATCH)


class Chosen(OfAgent):
    reservation_ids: Annotated[list[Id] | None, Field(max_length=MOST_IDS)] = None
    paths: Annotated[
        Paths | None, Field(description="The paths as you reserved them. Without paths or ids: all your reservations.")
    ] = None


class FilesRelease(Chosen, Trusted):
    pass


class ReleasedFiles(TypedDict):
    released: list[ReservationRow]
    warning: NotRequired[Annotated[str, Field(description="What you still hold of the paths.")]]


@operation(
    FilesRelease,
    *OWN,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    idempotent=True,
    slow=lambda p: p.paths is not None,  # these are compared with all that the agent holds
    own_transaction=True,  # it compares before the transaction
)
def files_release(p: FilesRelease, caller: Caller) -> ReleasedFiles:
    """Give files up as soon as you are done: whoever waits has them at once."""
    released, still_held = holding.release(
        project_root=p.project_root,
        agent_id=p.agent_id,
        reservation_ids=p.reservation_ids,
        paths=p.paths,
        recorded=partial(domain().acting, caller.operator, "files_release", agent_id=p.agent_id),
    )
    data: ReleasedFiles = {"released": [reservation_row(reservation) for reservation in released]}
    if still_held is None:
        data["warning"] = (
            "You may still hold parts of these paths: there was too much to compare; files_who shows it later."
        )
    elif still_held:
        parts = "; ".join(f"{path} overlaps {held.pattern} ({held.reservation_id})" for path, held in still_held)
        data["warning"] = f"You still hold {parts}. A reservation is given up whole: by its id, or by its own path."
    return data


class FilesExtend(Chosen, Trusted):
    seconds: Annotated[Seconds | None, Field(description="Seconds from now; none: the time of the reservation.")] = None


class ExtendedFiles(TypedDict):
    extended: list[ReservationRow]


@operation(
    FilesExtend,
    *OWN,
    Code.INVALID_TRANSITION,
    acts_as="agent_id",
    guards=(in_session("session_id"),),
    idempotent=True,
)
def files_extend(p: FilesExtend, caller: Caller) -> ExtendedFiles:
    """Hold files longer; needed only when you will not be heard of for longer than the lease."""
    extended = holding.extend(
        project_root=p.project_root,
        agent_id=p.agent_id,
        reservation_ids=p.reservation_ids,
        paths=p.paths,
        seconds=p.seconds,
    )
    return {"extended": [reservation_row(reservation) for reservation in extended]}


class FilesWho(Params):
    project_root: SharedRoot
    path: Annotated[Path, Field(description="A file, a directory or a glob; ** is all of the project.")]


class FileHolders(TypedDict):
    pattern: Annotated[str, Field(description="The path as it is compared.")]
    held: Annotated[list[ReservationRow], Field(description="Who has it, oldest first.")]
    held_count: Annotated[int, Field(description="How many there are; held names the first 200.")]
    last: Annotated[ReservationRow | None, Field(description="Who had it last, of what ended lately.")]


@operation(FilesWho, *IN_WORKSPACE, read_only=True, slow=True)
def files_who(p: FilesWho, caller: Caller) -> FileHolders:
    """Who has files, what for and until when; and who had them last."""
    project = workspaces.locate(p.project_root)
    pattern = pattern_of(p.path, project_root=p.project_root, project=project)
    compared = selectors.compared_by(caller.agent_id or caller.connection or caller.transport)
    held, count = selectors.holders(shared_by(project), pattern, now(), compared)
    last = selectors.last(project.workspace_id, pattern, compared)
    return {
        "pattern": pattern,
        "held": [reservation_row(reservation) for reservation in held],
        "held_count": count,
        "last": None if last is None else reservation_row(last),
    }
