"""What all steps of a handoff share: find it, change it unless another process was first, and record an event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from coordination.log.emit import emit
from coordination.models import Event
from coordination.services import workspaces
from coordination.services.workspaces import ProjectDirectory
from handoffs import sql
from handoffs.models import STREAM, CheckedWork, Handoff, VerifiedWork
from nexus.core.operations.caller import HUB_AGENT, OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, not_found

if TYPE_CHECKING:
    from inbox.monitoring import Picture


class By(NamedTuple):
    """Who takes a step: an agent in its project, for a claim if it names one; the hub; or an operator, on the work of
    anybody."""

    agent_id: str = OPERATOR_AGENT
    project_root: str = ""  # of an agent's step
    claim_epoch: int | None = None
    operator: str | None = None

    @property
    def is_hub(self) -> bool:
        """Whether it is the hub."""
        return self.agent_id == HUB_AGENT and not self.operator

    @property
    def name(self) -> str:
        """The name in notices."""
        return self.operator or self.agent_id

    @property
    def actor(self) -> str | None:
        """The actor's name in the event log."""
        return None if self.operator or self.is_hub else self.agent_id

    @property
    def event_fields(self) -> dict[str, str]:
        """The operator's name, as a field of the event; empty for an agent."""
        return {"operator": self.operator} if self.operator else {}


# What a handoff that is open has none of.
UNCLAIMED = dict.fromkeys(
    ("claimed_by", "claimed_at", "released_from", "lease_seconds", "lease_expires_at", "blocked_reason")
)


def refresh_plan(project: workspaces.ProjectDirectory, handoff_id: str) -> None:
    """Read the plan anew before the transaction of a step on a handoff that carries a task. Raises NOT_FOUND."""
    if _carries_task(handoff_id):
        work().refresh(project)


@lru_cache(maxsize=1024)
def _carries_task(handoff_id: str) -> bool:
    """Return whether a handoff carries a task. That never changes after its creation, so the answer is kept. Raises
    NOT_FOUND."""
    row = sql.task_of.first(handoff_id=handoff_id)
    if row is None:
        raise not_found("handoff", handoff_id)
    return row[0] is not None


def find_handoff(workspace_id: str, handoff_id: str) -> Handoff:
    handoff = sql.find.first(handoff_id=handoff_id)
    if handoff is None:
        raise not_found("handoff", handoff_id)
    if handoff.workspace_id != workspace_id:
        raise workspaces.mismatch("handoff", handoff_id)
    return handoff


def settle_handoff(
    handoff: Handoff,
    status: str,
    moment: datetime,
    *,
    result: str | None = None,
    rejected_reason: str | None = None,
) -> None:
    """Move a handoff from the state that was checked to one without a lease, inside a transaction. A constraint
    demands that an open one has no claimant. Raises INVALID_TRANSITION where it is not in that state any more."""
    ended = sql.end(
        handoff_id=handoff.handoff_id,
        former=handoff.status,
        claimed_by=handoff.claimed_by or "",
        claim_epoch=handoff.claim_epoch,
        status=str(status),
        result=result,
        rejected_reason=rejected_reason,
        moment=moment,
    )
    if not ended:
        raise changed_meanwhile()


def changed_meanwhile() -> NexusError:
    """Return the error for a step from a state that the handoff has left."""
    return NexusError(Code.INVALID_TRANSITION, "The handoff changed meanwhile; look at it with handoff_get.")


def record(
    handoff: Handoff,
    what: str,
    actor: str | None,
    moment: datetime,
    numbered: bool = False,  # by position, because `more` has names
    /,
    **more: str | int | list[str] | None,
) -> Event:
    """Append the event `handoff.<what>`. Call it inside a transaction. See `emit` for `numbered`."""
    payload = {name: getattr(handoff, name) for name in ("handoff_id", "title", "target", "visibility")}
    return emit(
        workspace_id=handoff.workspace_id,
        stream=STREAM,
        type=f"handoff.{what}",
        actor=actor,
        payload={**payload, **more},
        moment=moment,
        visibility=handoff.visibility,
        target=handoff.target,
        handoff_id=handoff.handoff_id,
        trace_id=handoff.trace_id,
        numbered=numbered,
    )


class FinishedTask(NamedTuple):
    """A submitted task that waits for a person."""

    task_key: str
    number: int  # in the open cycle
    claim_epoch: int
    title: str
    doer: str | None  # the agent that did it, as far as that is known
    why: str  # the reason why it needs a person
    project_root: str
    since: datetime
    unblocks: int  # tasks that wait for it, also by way of others
    page: str  # where a person decides about it: the name of a route that takes the key


class CarriedTasks(Protocol):
    """Tasks, which agents know by their number in the open cycle, and rows by their key."""

    STREAM: str  # of the log: its events tell of tasks that can begin

    def refresh(self, project: ProjectDirectory) -> None:
        """Read what others wrote of the tasks, before the transaction in which a handoff's task changes."""

    def find(self, workspace_id: str, task_id: int) -> str:
        """Return the key of a task of the open cycle. Raises NOT_FOUND."""

    def ready(self, workspace_id: str) -> set[str]:
        """Return the keys of the tasks that could begin."""

    def count_waiting(self, agents: Collection[str]) -> dict[str, int]:
        """Return how many tasks wait for those that each of these agents works on or submitted."""

    def finished(self, picture: Picture) -> list[FinishedTask]:
        """Return the submitted tasks that wait for a person and for no review of a worktree, oldest first. Of very
        many, the oldest are examined."""

    def started(self, task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
        """Start the task of a handoff that an agent claimed. Called inside a transaction."""

    def completed(self, task_key: str, project: ProjectDirectory, agent_id: str, moment: datetime) -> None:
        """Complete the task of a completed handoff. Called inside a transaction."""

    def returned(
        self, task_key: str, project: ProjectDirectory, holder: str | None, actor: str | None, moment: datetime
    ) -> None:
        """Give back the task of a handoff whose claim ended without a result. Called inside a transaction."""


_registered: list[Callable[[], Any]] = []


def register_work(work: Callable[[], Any]) -> None:
    """Register the app that owns the tasks; it is loaded with the first handoff that carries one."""
    _registered[:] = [work]


def work() -> CarriedTasks:
    """Return the registered tasks. Raises NOT_FOUND where no app registered any."""
    if not _registered:
        raise not_found("system of tasks", "planning")
    found: CarriedTasks = _registered[0]()
    return found


def count_waiting_tasks(agents: Collection[str]) -> dict[str, int]:
    """Return how many tasks of plans wait for what each of these agents works on or submitted."""
    return work().count_waiting(agents) if _registered else {}


def finished_tasks(picture: Picture) -> list[FinishedTask]:
    """Return the tasks of plans that wait for a person and for no review of a worktree, oldest first."""
    return work().finished(picture) if _registered else []


_in_review: list[Callable[[Sequence[VerifiedWork]], Sequence[bool]]] = []


def register_reviews(in_review: Callable[[Sequence[VerifiedWork]], Sequence[bool]]) -> None:
    """Register the app that knows which worktrees wait for review."""
    _in_review[:] = [in_review]


def in_review(works: Sequence[VerifiedWork]) -> Sequence[bool]:
    """Return for each submitted work whether the worktree that it was done in waits for review, and is counted as
    that."""
    return _in_review[0](works) if _in_review else [False] * len(works)


Compared = tuple[list[str], list[str]]
_compare: list[Callable[[CheckedWork, Sequence[str]], Compared]] = []


def register_reservations(compare: Callable[[CheckedWork, Sequence[str]], Compared]) -> None:
    """Register the app that knows what the agent that did some work had reserved."""
    _compare[:] = [compare]


def compare_reserved(work: CheckedWork, paths: Sequence[str]) -> Compared:
    """Return the patterns that an agent reserved and no changed path fits, and the paths that no pattern covers."""
    return _compare[0](work, paths) if _compare else ([], [])


def streams() -> set[str]:
    """Return the streams whose events say which tasks can begin."""
    return {work().STREAM} if _registered else set()
