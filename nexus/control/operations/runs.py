"""Operations on runs, which are turns of agents as operators see them, and on the providers that are out."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control import selectors
from nexus.control.agents import outages, turns
from nexus.control.agents.rows import OutageRow, RunRow, TraceRow, WholeRunRow, outage_row, run_row
from nexus.control.errors import ControlCode
from nexus.control.permissions.members import actor_of
from nexus.control.toolset import operation
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Limit, Nothing, Params
from nexus.core.operations.registry import OPERATORS_ONLY

LISTED, MOST_LISTED = 50, 500
OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND)


class ListRuns(Params):
    which: Annotated[
        Literal["all", "needing_person"],
        Field(description="needing_person: failed or stuck, and neither retried nor dismissed."),
    ] = "all"
    agent_id: Annotated[Id | None, Field(description="Only runs of agents of this name.")] = None
    outcome: Annotated[
        Literal["queued", "running", "done", "cancelled", "failed", "refused", "stuck", "out_of_budget", "lost"] | None,
        Field(description="Only runs with this outcome."),
    ] = None
    before: Annotated[Id | None, Field(description="Only runs that are older than this run_id.")] = None
    limit: Annotated[Limit, Field(description=f"{MOST_LISTED} at most.")] = LISTED


class Runs(TypedDict):
    runs: list[RunRow]


@operation(ListRuns, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_runs(p: ListRuns, caller: Caller) -> Runs:
    """List the turns of the pool's agents as runs, newest first."""
    found = selectors.runs(
        agent_id=p.agent_id,
        outcome=p.outcome,
        needing_person=p.which == "needing_person",
        before=p.before,
        limit=min(p.limit, MOST_LISTED),
    )
    return {"runs": [run_row(turn, vars(turn)["glimpse"]) for turn in found]}


class OfRun(Params):
    run_id: Id


@operation(OfRun, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_get_run(p: OfRun, caller: Caller) -> WholeRunRow:
    """Return a run with its prompt, its steps, its answer, and why it ended."""
    return selectors.whole_run(selectors.run(p.run_id))


class TraceOf(OfRun):
    after: Annotated[int, Field(ge=0, description="`next` of the answer before.")] = 0
    limit: Annotated[Limit, Field(description=f"{MOST_LISTED} at most.")] = LISTED


class Trace(TypedDict):
    lines: list[TraceRow]
    next: Annotated[int | None, Field(description="What comes after it; null: this is the end.")]


@operation(TraceOf, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_get_trace(p: TraceOf, caller: Caller) -> Trace:
    """Return what went between a run's agent process, or its model's provider, and Nexus, as far as the log has it."""
    lines, after = selectors.trace(selectors.run(p.run_id), p.after, min(p.limit, MOST_LISTED))
    return {"lines": lines, "next": after}


class Retry(OfRun):
    content: Annotated[str | None, Field(min_length=1, description="Another prompt; else the run's own.")] = None


@operation(
    Retry,
    *OF_ONE,
    Code.INVALID_TRANSITION,
    Code.CONTENT_TOO_LARGE,
    ControlCode.POOL_FULL,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def pool_retry_run(p: Retry, caller: Caller) -> RunRow:
    """Start a run again that failed, was lost, was cancelled or is stuck, which cancels it first. It goes on in the
    agent's context: what the run changed before it ended is not undone."""
    return run_row(turns.retry(actor_of(caller), p.run_id, content=p.content))


@operation(OfRun, *OF_ONE, Code.INVALID_TRANSITION, requires=(OPERATORS_ONLY,), tool=False)
def pool_dismiss_run(p: OfRun, caller: Caller) -> RunRow:
    """Say that a run that failed or is stuck needs nobody any more. A stuck one runs on."""
    return run_row(turns.dismiss(p.run_id, operator_behind(caller)))


@operation(OfRun, *OF_ONE, Code.INVALID_TRANSITION, requires=(OPERATORS_ONLY,), tool=False)
def pool_cancel_run(p: OfRun, caller: Caller) -> RunRow:
    """End a run that is queued or running."""
    return run_row(turns.cancel_run(p.run_id, operator_behind(caller)))


class Outages(TypedDict):
    outages: list[OutageRow]


@operation(Nothing, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_outages(p: Nothing, caller: Caller) -> Outages:
    """List the runners whose providers are out. No run starts on them: it waits, or goes to the runner's fallback."""
    return {"outages": selectors.outages()}


class OfRunner(Params):
    runner: Annotated[Id, Field(description="A runner of runners.toml.")]


@operation(OfRunner, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def pool_reset_outage(p: OfRunner, caller: Caller) -> OutageRow:
    """Say that a runner's provider answers again: its runs start at once."""
    return outage_row(outages.reset(p.runner, operator_behind(caller)))
