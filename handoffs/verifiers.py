"""Who gives the verdict on submitted work, of handoffs and of tasks alike, and when a person must."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from django.db.models import F, QuerySet

from coordination import selectors as agents_known
from coordination.models import ID_LENGTH
from coordination.routing import Profile
from handoffs import check_runs, lifecycle
from handoffs.debts import PATIENCE
from handoffs.lifecycle import OPERATOR
from handoffs.models import AbstractCheckRun, CheckState, VerifiedWork
from handoffs.transitions import in_review
from inbox.monitoring import Picture
from nexus.core.operations.caller import OPERATOR_AGENT

W = TypeVar("W", bound=VerifiedWork)

EXAMINED = 200  # submitted works, the oldest
TOLD_OF_ONE = 20  # agents that a notice asks for their verdict


def to_ask(work: VerifiedWork, moment: datetime) -> list[str]:
    """Return the first agents that may verify a work now. All operators share one inbox."""
    if work.verifier == OPERATOR:
        return [OPERATOR_AGENT]
    named = agents_known.admitted(lifecycle.target_of_verifier(work.verifier, created_by=work.creator), moment)
    return list(islice((agent.agent_id for agent in named if work.verifies(agent)), TOLD_OF_ONE))


def for_person(
    checked: type[AbstractCheckRun], column: str, submitted: QuerySet[Any, W], picture: Picture
) -> tuple[list[tuple[W, str]], bool]:
    """Return those of the submitted works, which are sorted, that wait for a person and for no review of a worktree,
    each with the reason; and whether there are more than were examined. The runs of their checks are `checked`, and
    name them in a `column`.

    A person decides where an operator is the verifier or nobody else may verify, where checks failed too often or
    cannot run, and where a verifier let it wait for long.
    """
    examined = list(submitted[:EXAMINED])
    latest = {f"{column}__in": examined, "claim_epoch": F(f"{column}__claim_epoch")}
    unpassed = checked._default_manager.filter(**latest).exclude(state=CheckState.PASSED).defer("facts")
    runs = unpassed.annotate(is_stuck=check_runs.stuck(picture.moment)) if examined else ()
    run_of = {getattr(run, f"{column}_id"): run for run in runs}
    team = [state.agent.profile for state in picture.agents] if examined else []
    whys = ((work, _why_person(work, run_of.get(work.pk), team, picture.moment)) for work in examined)
    found = [(work, why) for work, why in whys if why is not None]
    reviewed = in_review([work for work, _ in found])
    waiting = [each for each, is_reviewed in zip(found, reviewed, strict=True) if not is_reviewed]
    return waiting, len(examined) == EXAMINED


def _why_person(
    work: VerifiedWork, run: AbstractCheckRun | None, team: Sequence[Profile], moment: datetime
) -> str | None:
    """Return why a submitted work needs a person, by its checks that did not pass; None while they or an agent have
    it."""
    done = f"{(work.doers[0] or 'somebody')[:ID_LENGTH]} says that it is done"
    if run is not None:
        if run.state == CheckState.FAILED:
            return f"{done}, and {check_runs.failures(run)[:300]} failed"
        return check_runs.why_stuck(run) if run.is_stuck else None  # type: ignore[attr-defined]  # annotated
    verifier = next((agent.agent_id for agent in team if work.verifies(agent)), None)
    if verifier is None or work.verifier == OPERATOR:
        return done
    return f"{done}, and {verifier} has not looked at it" if work.since <= moment - PATIENCE else None
