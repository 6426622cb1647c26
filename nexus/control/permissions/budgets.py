"""Budgets of tokens, money and turns: set by operators, spent by runs. A spent budget lets no new run begin; one that
runs may end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime

from nexus.control.events import emit_event
from nexus.control.models import Budget, BudgetMeasure, BudgetScope, PoolAgent, PoolWorktree, Turn
from nexus.control.permissions import rules
from nexus.control.permissions.prices import MILLIONTHS, MOST
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid, not_found

MOST_BUDGETS = 500


def set_budget(
    *, scope: str, name: str, measure: str, period: str, limit: float, currency: str, operator: str
) -> Budget:
    """Set a budget, or change the limit of the one that is the same but for that; what was spent of it stays spent.

    It counts from when it is first set. Raises VALIDATION_ERROR.
    """
    name = _checked_name(BudgetScope(scope), name)
    allowed = limit * (MILLIONTHS if measure == BudgetMeasure.MONEY else 1)
    if measure != BudgetMeasure.MONEY and not limit.is_integer():
        raise invalid(f"A limit of {measure} is a whole number.", field="limit")
    if not 1 <= allowed <= MOST:
        raise invalid(f"A limit lies between a millionth and {MOST // MILLIONTHS:,} of money, or 1 and {MOST:,}.",
                      field="limit")  # fmt: skip
    moment = now()
    named = {"scope": scope, "name": name, "measure": measure, "period": period}
    key = budget_id(**named)
    with write():
        known = Budget.objects.select_for_update().filter(pk=key).first()
        if known is None and Budget.objects.count() >= MOST_BUDGETS:
            raise invalid(f"There are {MOST_BUDGETS} budgets already; remove some first.")
        money = currency if measure == BudgetMeasure.MONEY else None
        if known is not None and known.currency != money:
            raise invalid(f"This budget is in {known.currency}; remove it first.", field="currency")
        changed = {"allowed": round(allowed), "currency": money, "set_by": operator, "set_at": moment}
        budget, _ = Budget.objects.update_or_create(
            pk=key, defaults=changed, create_defaults={**named, **changed, "day": _day(moment)}
        )
    return budget.renew(_day(moment))


def budget_id(scope: str, name: str, measure: str, period: str) -> str:
    """Return the id of the one budget with these four values."""
    return f"bud_{hashlib.sha256(chr(0).join((scope, name, measure, period)).encode()).hexdigest()[:24]}"


def _checked_name(scope: BudgetScope, name: str) -> str:
    match scope:
        case BudgetScope.POOL if name:
            raise invalid("A budget of the pool has no name.", field="name")
        case BudgetScope.AGENT | BudgetScope.SUBTREE if not rules.is_agent_id(name):
            raise invalid("Name the agent.", field="name")
        case BudgetScope.PROJECT:
            if not name.startswith("/") or "\0" in name:
                raise invalid("Name the project by its absolute path.", field="name")
            return os.path.realpath(name)
    return name


def remove(budget_id: str) -> Budget:
    """Remove a budget. Raises NOT_FOUND."""
    with write():
        budget = Budget.objects.select_for_update().filter(pk=budget_id).first()
        if budget is None:
            raise not_found("budget", budget_id[:200])
        Budget.objects.filter(pk=budget_id).delete()
    return budget


def every() -> list[Budget]:
    """Return all budgets, those that are nearly spent first."""
    return renewed(Budget.objects.order_by("pk"))


def renewed(found: Iterable[Budget]) -> list[Budget]:
    """Return budgets as they are today, those that are nearly spent first."""
    today = _day(now())
    return sorted((budget.renew(today) for budget in found), key=lambda each: (-each.percent, each.scope, each.name))


def exhausted(agent: PoolAgent, moment: datetime) -> Budget | None:
    """Return a budget that lets no run of the agent begin; None if there is none."""
    return next((each for each in _of(agent) if each.renew(_day(moment)).is_spent), None)


def count_run(agent: PoolAgent, moment: datetime, *, again: bool = False) -> Budget | None:
    """Count a run that begins, unless a budget is spent; return that one. Call it inside the transaction that starts
    the run: the rows are locked, so that of two runs only one takes the last turn. A run that begins again after a
    fault has taken its turn."""
    counted = [each for each in _of(agent) if not (again and each.measure == BudgetMeasure.TURNS)]
    budgets = _locked(counted, moment)
    if (spent := next((each for each in budgets if each.is_spent), None)) is not None:
        return spent
    for budget in budgets:
        if budget.measure == BudgetMeasure.TURNS:
            _spend(budget, 1, agent, moment)
    return None


def count_spent(turn: Turn, moment: datetime) -> None:
    """Count what a run has spent. Call it inside the transaction that ends the run."""
    counted = [each for each in _of(turn.agent) if each.measure != BudgetMeasure.TURNS]
    for budget in _locked(counted, moment):
        if budget.measure == BudgetMeasure.TOKENS:
            spent: int | None = turn.input_tokens + turn.output_tokens or None
        else:
            spent = turn.cost if turn.currency == budget.currency else None
        _spend(budget, spent, turn.agent, moment)


def _spend(budget: Budget, amount: int | None, agent: PoolAgent, moment: datetime) -> None:
    was_spent, was_nearly = budget.is_spent, budget.is_nearly_spent
    if amount is None:
        budget.unknown += 1
    else:
        budget.spent = min(budget.spent + amount, 2**62)
    budget.save(update_fields=["spent", "unknown", "day"])
    for before, after, type in (
        (was_spent, budget.is_spent, "pool.budget_spent"),
        (was_nearly, budget.is_nearly_spent, "pool.budget_nearly_spent"),
    ):
        if after and not before:
            emit_event(type, None, agent, moment, budget_id=budget.pk, budget=str(budget), percent=budget.percent)
            return


def _locked(budgets: Sequence[Budget], moment: datetime) -> list[Budget]:
    """Lock the rows, in the same order for everybody, and return them as they are now."""
    if not budgets:
        return []
    rows = Budget.objects.select_for_update().filter(pk__in=[each.pk for each in budgets]).order_by("pk")
    return [row.renew(_day(moment)) for row in rows]


def _of(agent: PoolAgent) -> list[Budget]:
    """Return the budgets that count an agent's runs."""
    budgets = list(Budget.objects.order_by("pk"))
    scopes = {each.scope for each in budgets}
    names = {agent.agent_id, *(_ancestors(agent) if BudgetScope.SUBTREE in scopes else ())}
    paths = list(directories(agent)) if BudgetScope.PROJECT in scopes else []

    def counts(budget: Budget) -> bool:
        match budget.scope:
            case BudgetScope.AGENT:
                return budget.name == agent.agent_id
            case BudgetScope.SUBTREE:
                return budget.name in names
            case BudgetScope.PROJECT:
                return any(rules.within(path, (budget.name,)) for path in paths)
        return True

    return [budget for budget in budgets if counts(budget)]


def _ancestors(agent: PoolAgent) -> Iterator[str]:
    while agent.parent is not None:
        agent = agent.parent
        yield agent.agent_id


def directories(agent: PoolAgent) -> Iterator[str]:
    """Yield an agent's directory, and the origin of its worktree."""
    yield agent.cwd
    yield from PoolWorktree.objects.filter(agent=agent).values_list("origin", flat=True)


def _day(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
