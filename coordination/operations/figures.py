"""The operation that returns figures over a window."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from coordination.figures import Measured, Summary, measured
from coordination.toolset import operation
from nexus.core.clock import iso, now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, invalid
from nexus.core.operations.parameters import Id, Params
from nexus.core.operations.registry import OPERATORS_ONLY
from nexus.core.operations.schemas import Time

DAY, LONGEST = 86_400, 366 * 86_400


class Figures(Params):
    window_seconds: Annotated[int, Field(ge=60, le=LONGEST, description="How much time, up to `until`.")] = DAY
    until: Annotated[str | None, Field(max_length=64, description="ISO-8601; now by default.")] = None
    agent_id: Annotated[Id | None, Field(description="Only what this agent did.")] = None


class FigureSummary(TypedDict):
    count: int
    median: float
    p90: float
    p99: float
    max: float


class FigureBucket(TypedDict):
    at_most: float | None
    count: int


class FigureRow(TypedDict):
    name: str
    title: str
    what: str
    unit: str
    all: FigureSummary | None
    by_agent: dict[str, FigureSummary]
    by_kind: dict[str, FigureSummary]
    buckets: list[FigureBucket]
    newest_only: bool


class FigureList(TypedDict):
    since: Time
    until: Time
    figures: list[FigureRow]


@operation(Figures, Code.VALIDATION_ERROR, guards=(OPERATORS_ONLY,), read_only=True, tool=False, slow=True)
def figures(p: Figures, caller: Caller) -> FigureList:
    """How well it goes, over a window: how long handoffs wait and take, how long mail takes to be acknowledged and how
    often it is redelivered. Count, median, percentiles and maximum, in all, by agent and by kind; `buckets` tells how
    they are spread (`at_most` null: above all bounds), `newest_only` that there were more than the newest 3,000."""
    until = now() if p.until is None else _moment(p.until)
    try:
        since = until - timedelta(seconds=p.window_seconds)
    except OverflowError:
        raise invalid("until must be a time after the year 1.", field="until") from None
    found = measured(since, until, agent_id=p.agent_id)
    return {"since": iso(since), "until": iso(until), "figures": [_row(each) for each in found]}


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None or not 2000 <= moment.year <= 2100:
            raise ValueError
    except ValueError:
        raise invalid("until must be a time such as 2026-01-31T12:00:00Z.", field="until") from None
    return moment


def _row(found: Measured) -> FigureRow:
    figure = found.figure
    bounds: list[float | None] = [*figure.bounds, None]
    return {
        "name": figure.name,
        "title": figure.title,
        "what": figure.what,
        "unit": figure.unit,
        "all": _summary(found.all) if found.all else None,
        "by_agent": {name: _summary(each) for name, each in found.by_agent.items()},
        "by_kind": {name: _summary(each) for name, each in found.by_kind.items()},
        "buckets": [{"at_most": bound, "count": count} for bound, count in zip(bounds, found.bars, strict=True)],
        "newest_only": found.cut,
    }


def _summary(found: Summary) -> FigureSummary:
    return {"count": found.count, "median": found.median, "p90": found.p90, "p99": found.p99, "max": found.max}
