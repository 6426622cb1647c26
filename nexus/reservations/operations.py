"""The operations of reservations: reserve files, extend and release reservations, list holders."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Annotated, NoReturn, NotRequired, cast

from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

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
from coordination.rows import Duplicate
from coordination.services import workspaces
from handoffs.models import STREAM as HANDOFFS
from nexus.core.clock import iso, now
from nexus.core.config import CoreSettings
from nexus.core.domain import domain
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import MAX_INTEGER, Id, Outside, Params, Time, not_blank, one_of
from nexus.core.operations.registry import Wait
from nexus.core.waiting import Interest
from nexus.reservations import selectors, services
from nexus.reservations.config import LEAST_SECONDS, MOST_SECONDS
from nexus.reservations.models import STREAM, Reservation, ReservationOutcome
from nexus.reservations.paths import pattern_of, shared_by
from nexus.reservations.selectors import ReservationConflict
from nexus.reservations.services import MOST_WAITING, NAMED
from nexus.reservations.toolset import FilesCode, operation


class ReservationRow(TypedDict):
    """A reservation, held or ended."""

    reservation_id: str
    pattern: Annotated[str, Field(description="As gitignore has it, relative to the project.")]
    exclusive: bool
    agent_id: Annotated[str, Field(description="Who holds it, or held it.")]
    reason: str | None
    handoff_id: str | None
    task_id: int | None
    claim_epoch: Annotated[int, Field(description="Grows with each reservation.")]
    created_at: Time
    expires_at: Annotated[Time, Field(description="When it ends without an act of its holder.")]
    asked_by: NotRequired[Annotated[list[str], Field(description="Who asked for the files.")]]
    waiting: NotRequired[Annotated[list[str], Field(description="Who waits for the files now.")]]
    released_at: NotRequired[Annotated[Time, Field(description="When it ended.")]]
    outcome: NotRequired[Annotated[str, one_of(ReservationOutcome.values, "How it ended.")]]


class RefusedRow(TypedDict):
    """A path that was not reserved, and the reservation in its way."""

    path: Annotated[str, Field(description="The pattern asked for.")]
    held: ReservationRow


def reservation_row(reservation: Reservation) -> ReservationRow:
    """Return the row of a reservation."""
    row: ReservationRow = {
        "reservation_id": reservation.reservation_id,
        "pattern": reservation.pattern,
        "exclusive": reservation.exclusive,
        "agent_id": reservation.agent_id,
        "reason": reservation.reason,
        "handoff_id": reservation.handoff_id,
        "task_id": reservation.task_id,
        "claim_epoch": reservation.claim_epoch,
        "created_at": iso(reservation.created_at),
        "expires_at": iso(reservation.expires_at),
    }
    if reservation.asked_by:
        row["asked_by"] = reservation.asked_by
    if waiting := reservation.waiting:
        row["waiting"] = waiting
    if reservation.released_at is not None and reservation.outcome is not None:
        row["released_at"], row["outcome"] = iso(reservation.released_at), reservation.outcome
    return row


def refused_row(conflict: ReservationConflict) -> RefusedRow:
    """Return the row of a conflict."""
    return {"path": conflict.pattern, "held": reservation_row(conflict.held)}


MOST_PATHS, MOST_IDS = 200, 1_000
GIVEN_PATH = 4096  # characters; an absolute path may be this long

# A work tree of the same repository may also be on a mount.
SharedRoot = Annotated[
    ProjectRoot,
    Outside(lambda root: shared_by(workspaces.locate(root)), silent=CoordinationCode.WORKSPACE_UNRESOLVED),
]
Path = Annotated[str, Field(max_length=GIVEN_PATH), AfterValidator(not_blank)]
Paths = Annotated[list[Path], Field(min_length=1, max_length=MOST_PATHS)]
Seconds = Annotated[int, Field(ge=LEAST_SECONDS, le=MOST_SECONDS)]


class OfAgent(Params):
    project_root: ProjectRoot
    agent_id: Annotated[Id, Field(description="You.")]


class Trusted(Params):
    session_id: SessionId = None
    session_secret: SessionSecret = None


TOLD, MOST_TOLD = 5, 50  # conflicts in the message of an error, and in its details


class FilesReserve(OfAgent, Trusted):
    project_root: SharedRoot
    paths: Annotated[Paths, Field(description="Files, directories, or globs of *, ** and ?.")]
    exclusive: Annotated[bool, Field(description="false: shared, you only read.")] = True
    seconds: Annotated[Seconds | None, Field(description="From your latest act; 900 by default.")] = None
    reason: Annotated[str | None, Field(description="Why; shown to agents that want them.")] = None
    handoff_id: Annotated[
        Id | None,
        Field(description="One that you hold: the reservation ends with your claim."),
    ] = None
    claim_epoch: Annotated[ClaimEpoch, Field(description="Of the handoff.")] = None
    task_id: Annotated[int | None, Field(ge=1, le=MAX_INTEGER, description="The planned task it is for.")] = None
    all_or_nothing: Annotated[bool, Field(description="false: take what is free.")] = True
    timeout_seconds: Annotated[float, Field(ge=0, description="Longest wait; the server allows 30 by default.")] = 0
    ask: Annotated[bool, Field(description="Also ask the holders, with a message to their inbox.")] = False
    client_id: ClientId = None


class ReservedFiles(TypedDict):
    reservations: list[ReservationRow]
    refused: Annotated[list[RefusedRow], Field(description="What others have, with all_or_nothing=false.")]
    duplicate: NotRequired[Duplicate]
    asked: NotRequired[Annotated[list[str], Field(description="The holders whose inbox has your question.")]]


def _wish(p: FilesReserve) -> tuple[services.WantedFiles, workspaces.ProjectDirectory]:
    return services.wish(
        project_root=p.project_root,
        agent_id=p.agent_id,
        paths=p.paths,
        exclusive=p.exclusive,
        seconds=p.seconds,
        reason=p.reason,
        handoff_id=p.handoff_id,
        claim_epoch=p.claim_epoch,
        task_id=p.task_id,
        all_or_nothing=p.all_or_nothing,
        client_id=p.client_id,
    )


def _recorded(
    operation: str, p: FilesReserve | FilesRelease, caller: Caller
) -> Callable[[], AbstractContextManager[object]] | None:
    """Return what a service enters in its transaction, so that an operator's use of an agent's operation is logged;
    None for an agent."""
    if caller.operator is None:
        return None
    return partial(domain().acting, caller.operator, operation, agent_id=p.agent_id)


def _perform(p: FilesReserve, caller: Caller, *, ask: bool) -> ReservedFiles:
    wish, project = _wish(p)
    reserved = services.reserve(wish, project, ask=ask, recorded=_recorded("files_reserve", p, caller))
    data: ReservedFiles = {
        "reservations": [reservation_row(reservation) for reservation in reserved.reservations],
        "refused": [refused_row(conflict) for conflict in reserved.conflicts],
    }
    if reserved.duplicate:
        data["duplicate"] = True
    if reserved.asked:
        data["asked"] = reserved.asked
    return data


def _ends(p: FilesReserve) -> Interest:
    """Return the interest in events that may free the files, also in the end of a handoff that the caller may not
    see."""
    sharing = shared_by(workspaces.locate(p.project_root))
    return Interest(interest_keys(sharing, (STREAM, HANDOFFS), None), lambda event: True)


def _look(p: FilesReserve, caller: Caller) -> dict[str, bool]:
    """Return whether the call would reserve something now. If not, it waits for those who took it meanwhile, too."""
    wish, _ = _wish(p)
    conflicts = services.in_the_way(wish)
    free = bool(services.free(wish, conflicts))
    if not free:
        held = [(conflict.held.pk, conflict.held.waiting) for conflict in conflicts[:NAMED]]
        _note_wait(p, wish.shared_by, held)
    return {"reservations": free}


def _note_wait(p: FilesReserve, sharing: Sequence[str], held: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Show on reservations of the workspaces that share their files, given by id and with the agents that wait for them
    already, that this agent does, too."""
    new = [key for key, waiting in dict(held).items() if p.agent_id not in waiting and len(waiting) < MOST_WAITING]
    if new:
        seconds = min(p.timeout_seconds, CoreSettings.current().max_wait_timeout_seconds)
        services.note_waiter(p.agent_id, sharing, new, seconds)


def _refuse(data: ReservedFiles) -> NoReturn:
    """Raise FILES_RESERVED: nothing was reserved."""
    refused, asked = data["refused"], data.get("asked", [])
    sentences = "; ".join(_conflict_sentence(row) for row in refused[:TOLD])
    more = f"; and {len(refused) - TOLD} more" if len(refused) > TOLD else ""
    then = (
        f"{', '.join(asked)} got your question; wait for the files with timeout_seconds."
        if asked
        else "Wait for them with timeout_seconds, have their holder asked (ask), or take other work."
    )
    raise NexusError(
        FilesCode.FILES_RESERVED,
        f"Nothing was reserved: {sentences}{more}. {then}",
        {"refused": refused[:MOST_TOLD], "refused_count": len(refused), **({"asked": asked} if asked else {})},
    )


def _conflict_sentence(row: RefusedRow) -> str:
    held = row["held"]
    what = "exclusively" if held["exclusive"] else "to read"
    why = f" for {held['reason'][:200]!r}" if held["reason"] else ""
    work = f", handoff {held['handoff_id']}" if held["handoff_id"] else ""
    work += f", task {held['task_id']}" if held["task_id"] else ""
    return (
        f"{row['path']} overlaps {held['pattern']}, which {held['agent_id']!r} has {what}{why}{work} until "
        f"{held['expires_at']}, or longer while it is at work"
    )


@operation(
    FilesReserve,
    *IN_WORKSPACE,
    Code.NOT_OWNER,
    Code.NOT_FOUND,
    CoordinationCode.WORKSPACE_MISMATCH,
    Code.INVALID_TRANSITION,
    CoordinationCode.STALE_CLAIM,
    Code.CONTENT_TOO_LARGE,
    FilesCode.FILES_RESERVED,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    slow=True,  # a file, too, is compared with each glob that may match it
    own_transaction=True,  # it compares before the transaction
    idempotent=True,  # what an agent holds is renewed
    wait=Wait[FilesReserve](
        timeout=lambda p: p.timeout_seconds,
        interested=_ends,
        look=_look,
        done=lambda data: bool(data["reservations"]),
        finish=lambda p, caller, performed: _perform(p, caller, ask=False),
        expired=lambda p, data: _refuse(cast(ReservedFiles, data)),
        next_change=lambda p: selectors.next_change(shared_by(workspaces.locate(p.project_root))),
    ),
)
def files_reserve(p: FilesReserve, caller: Caller) -> ReservedFiles:
    """Reserve files before you edit them: all of them or, with all_or_nothing=false, what is free. Your acts and
    heartbeats keep the lease running."""
    data = _perform(p, caller, ask=p.ask)
    if p.timeout_seconds and not data["reservations"]:
        held = [(row["held"]["reservation_id"], ()) for row in data["refused"][:NAMED]]
        _note_wait(p, shared_by(workspaces.locate(p.project_root)), held)
    return data


OWN = (
    *IN_WORKSPACE,
    Code.NOT_OWNER,
    Code.NOT_FOUND,
    CoordinationCode.WORKSPACE_MISMATCH,
    CoordinationCode.STALE_CLAIM,
)


class Chosen(OfAgent):
    reservation_ids: Annotated[list[Id] | None, Field(max_length=MOST_IDS)] = None
    paths: Annotated[
        Paths | None, Field(description="The paths as you reserved them. Without paths or ids: all your reservations.")
    ] = None
    claim_epoch: Annotated[ClaimEpoch, Field(description="Of your latest reservation.")] = None


class FilesRelease(Chosen, Trusted):
    pass


class ReleasedFiles(TypedDict):
    released: list[ReservationRow]
    warning: NotRequired[Annotated[str, Field(description="What you still hold of the paths.")]]


@operation(
    FilesRelease,
    *OWN,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    idempotent=True,
    slow=lambda p: p.paths is not None,  # these are compared with all that the agent holds
    own_transaction=True,  # it compares before the transaction
)
def files_release(p: FilesRelease, caller: Caller) -> ReleasedFiles:
    """Release files as soon as you are done: an agent that waits gets them at once."""
    released, still_held = services.release(
        project_root=p.project_root,
        agent_id=p.agent_id,
        reservation_ids=p.reservation_ids,
        paths=p.paths,
        claim_epoch=p.claim_epoch,
        recorded=_recorded("files_release", p, caller),
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
    seconds: Annotated[Seconds | None, Field(description="Seconds from now; default: as long as reserved.")] = None


class ExtendedFiles(TypedDict):
    extended: list[ReservationRow]


@operation(
    FilesExtend,
    *OWN,
    Code.INVALID_TRANSITION,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    idempotent=True,
)
def files_extend(p: FilesExtend, caller: Caller) -> ExtendedFiles:
    """Extend your reservations; needed only before a silence that is longer than the lease."""
    extended = services.extend(
        project_root=p.project_root,
        agent_id=p.agent_id,
        reservation_ids=p.reservation_ids,
        paths=p.paths,
        seconds=p.seconds,
        claim_epoch=p.claim_epoch,
    )
    return {"extended": [reservation_row(reservation) for reservation in extended]}


class FilesWho(Params):
    project_root: SharedRoot
    path: Annotated[Path, Field(description="A file, a directory or a glob; ** is all of the project.")]


class FileHolders(TypedDict):
    pattern: Annotated[str, Field(description="The path as it is compared.")]
    held: Annotated[list[ReservationRow], Field(description="Its holders, oldest first.")]
    held_count: Annotated[int, Field(description="How many there are; held has the first 200.")]
    last: Annotated[ReservationRow | None, Field(description="Those who held it last and ended lately.")]


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
