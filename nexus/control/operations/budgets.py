"""Operations on budgets of the pool."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control.models import PATH_LENGTH, Budget, BudgetMeasure
from nexus.control.permissions import budgets
from nexus.control.permissions.prices import CURRENCY, MILLIONTHS
from nexus.control.toolset import operation
from nexus.core.clock import iso
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Nothing, Params, Time
from nexus.core.operations.registry import OPERATORS_ONLY


class SetBudget(Params):
    scope: Annotated[
        Literal["agent", "subtree", "project", "pool"],
        Field(description="subtree: an agent and those below it; project: agents in a directory; pool: all."),
    ]
    name: Annotated[str, Field(max_length=PATH_LENGTH, description="The agent, or the project's path.")] = ""
    measure: Annotated[Literal["tokens", "money", "turns"], Field(description="What it counts.")]
    limit: Annotated[float, Field(gt=0, description="At which no run begins any more.")]
    period: Annotated[
        Literal["day", "total"], Field(description="day: it begins again at midnight, UTC; total: it does not.")
    ] = "day"
    currency: Annotated[str, Field(pattern=CURRENCY, description="Of money; costs in others are unknown.")] = "USD"


class BudgetRow(TypedDict):
    budget_id: str
    scope: str
    name: str
    measure: str
    period: str
    limit: float
    spent: float
    percent: Annotated[
        int, Field(description="That is spent. From 80 on operators are told, from 100 on no run begins.")
    ]
    currency: str | None
    unknown_runs: Annotated[int, Field(description="Runs that did not tell what they spent.")]
    set_by: str
    set_at: Time


class Budgets(TypedDict):
    budgets: list[BudgetRow]


class OfBudget(Params):
    budget_id: Id


@operation(SetBudget, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False)
def pool_set_budget(p: SetBudget, caller: Caller) -> BudgetRow:
    """Limit what runs spend, from now on. Set again, a budget gets another limit; what was spent of it stays spent."""
    budget = budgets.set_budget(
        scope=p.scope,
        name=p.name,
        measure=p.measure,
        period=p.period,
        limit=p.limit,
        currency=p.currency,
        operator=operator_behind(caller),
    )
    return _row(budget)


@operation(Nothing, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_budgets(p: Nothing, caller: Caller) -> Budgets:
    """List the budgets and what is spent of each, those that are nearly spent first."""
    return {"budgets": [_row(budget) for budget in budgets.every()]}


@operation(OfBudget, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False)
def pool_remove_budget(p: OfBudget, caller: Caller) -> BudgetRow:
    """Remove a budget: it limits no run any more."""
    return _row(budgets.remove(p.budget_id))


def _row(budget: Budget) -> BudgetRow:
    unit = MILLIONTHS if budget.measure == BudgetMeasure.MONEY else 1
    return {
        "budget_id": budget.pk,
        "scope": budget.scope,
        "name": budget.name,
        "measure": budget.measure,
        "period": budget.period,
        "limit": budget.allowed / unit,
        "spent": budget.spent / unit,
        "percent": budget.percent,
        "currency": budget.currency,
        "unknown_runs": budget.unknown,
        "set_by": budget.set_by,
        "set_at": iso(budget.set_at),
    }
