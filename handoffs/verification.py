"""Verdicts on submitted work, by one set of rules for handoffs and for planned tasks.

Work with acceptance criteria or a verifier is submitted before it counts: its checks run first (`check_runs`), then its
verifier or an operator accepts it, or returns it to the agent that did it, for whom a new epoch begins. Each app
registers its kind of work, which stores that and says it in its own notices.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db.models import Q, QuerySet

from coordination.debts import Debt
from handoffs.lifecycle import CREATOR
from handoffs.models import AbstractCheckRun, CheckRunQuerySet, CheckState, VerifiedWork
from handoffs.transitions import By
from nexus.core.clock import now
from nexus.core.operations.caller import HUB_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.size_limits import within_limit

R = TypeVar("R", bound=AbstractCheckRun)
W = TypeVar("W", bound=VerifiedWork)

HUB = By(HUB_AGENT)
MOST_DEBTS = 1_000


class WorkKind(ABC, Generic[R, W]):
    """A kind of work whose results are verified. Call all but `refresh` inside a transaction."""

    name: str
    model: type[R]  # of the runs of its checks
    column: str  # of that model, which refers to the work

    @abstractmethod
    def refresh(self, run: R) -> None:
        """Prepare for the transaction in which the outcome of a run is stored."""

    @abstractmethod
    def waiting(self, run: R) -> W | None:
        """Return the work of a run; None if its result does not wait for this run any more."""

    @abstractmethod
    def runs_of(self, work: W) -> CheckRunQuerySet:
        """Return the runs of the checks of a work's results."""

    @abstractmethod
    def check_verdict(self, verb: str, work: W, by: By) -> None:
        """Check that a work is submitted, and may get this verdict, accept or return, from `by`.

        Raises STALE_CLAIM, INVALID_TRANSITION, NOT_OWNER.
        """

    @abstractmethod
    def record(self, work: W, what: str, by: By, moment: datetime, **payload: Any) -> None:
        """Append an event of a work."""

    @abstractmethod
    def complete(self, work: W, moment: datetime) -> None:
        """Store that a submitted work is complete, and let begin what waited for it."""

    @abstractmethod
    def reclaim(self, work: W, by: By, reasons: str, moment: datetime) -> None:
        """Store that a submitted work is its doer's again, by the next epoch."""

    @abstractmethod
    def ask_verifiers(self, work: W, moment: datetime) -> None:
        """Ask the verifiers of a submitted work for their verdict."""

    @abstractmethod
    def notify_completed(self, work: W, by: By, moment: datetime) -> list[str]:
        """Notify whom it concerns that a work was accepted, or, by the hub, that it passed its checks; return whom the
        notice reached."""

    @abstractmethod
    def notify_returned(self, work: W, by: By, reasons: str, moment: datetime) -> list[str]:
        """Notify the agent that did a work that it was returned; return whom the notice reached."""

    def runs(self) -> QuerySet[R]:
        """Return all runs of this kind, with their work and its workspace."""
        return self.model._default_manager.select_related(f"{self.column}__workspace")

    def accept(self, work: W, by: By) -> list[str]:
        """Accept a submitted work, which completes it; return whom a notice reached. An agent must wait for the checks.

        Raises as `check_verdict` does.
        """
        moment = now()
        self.check_verdict("accept", work, by)
        runs = self.runs_of(work)
        if by.operator is None:
            latest = runs.order_by("-pk").first()
            if latest is not None and latest.state != CheckState.PASSED:
                what = "failed; an operator decides" if latest.state == CheckState.FAILED else "have not ended yet"
                raise NexusError(Code.INVALID_TRANSITION, f"Its checks {what}.", {"checks": str(latest.state)})
        runs.drop()
        self.record(work, "accepted", by, moment, **by.event_fields)
        self.complete(work, moment)
        return self.notify_completed(work, by, moment)

    def send_back(self, work: W, by: By, reasons: str, *, is_known: bool = False) -> list[str]:
        """Return a submitted work to the agent that did it; return whom the notice reached. If that agent `is_known` to
        learn of it in another way, there is none.

        Raises as `check_verdict` does.
        """
        self.check_verdict("return", work, by)
        return self.give_back(work, by, reasons, now(), is_known=is_known)

    def give_back(self, work: W, by: By, reasons: str, moment: datetime, *, is_known: bool = False) -> list[str]:
        """Do what `send_back` does, without its checks."""
        self.runs_of(work).drop()
        self.reclaim(work, by, reasons, moment)
        return [] if is_known else self.notify_returned(work, by, reasons, moment)

    def passed(self, work: W, moment: datetime) -> None:
        """Ask the verifiers of a work whose checks passed; complete one that has none."""
        if work.verifier is not None:
            self.ask_verifiers(work, moment)
            return
        self.complete(work, moment)
        self.notify_completed(work, HUB, moment)


def require_text(text: str, field: str) -> None:
    """Check the text of a reason. Raises VALIDATION_ERROR for a blank one, CONTENT_TOO_LARGE."""
    if not text.strip():
        raise invalid(f"{field} must not be blank.", field=field)
    within_limit(text, field)


_registered: dict[str, Callable[[], WorkKind[Any, Any]]] = {}


def register(name: str, kind: Callable[[], WorkKind[Any, Any]]) -> None:
    """Register a kind of work by its name; it is loaded where it is first needed."""
    _registered[name] = kind


def kind_named(name: str) -> WorkKind[Any, Any]:
    """Return a registered kind."""
    return _registered[name]()


def kinds() -> list[WorkKind[Any, Any]]:
    """Return the registered kinds."""
    return [load() for load in _registered.values()]


def owed_verdicts(
    kind: str, submitted: QuerySet[Any], agents: Collection[str] | None, created_by: str
) -> Iterator[Debt]:
    """Yield a debt for each of the submitted works that one agent alone must verify; the creditor is who did it.
    `created_by` is the column of who made the work."""
    if agents is not None:
        named = [f"agent:{agent_id}" for agent_id in agents]
        submitted = submitted.filter(Q(verifier__in=named) | Q(verifier=CREATOR, **{f"{created_by}__in": agents}))
    for work in submitted[:MOST_DEBTS]:
        if agent_id := work.sole_verifier:  # else an operator says it
            yield Debt(agent_id, kind, work.pk, work.title, work.doers[0], work.since, work.workspace_id)
