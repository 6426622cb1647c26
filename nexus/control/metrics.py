"""Metrics of the pool: how long turns wait and run, how many tokens they use, how long questions wait; and /metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import Min, QuerySet
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from nexus.control.agents import monitoring
from nexus.control.models import OVER, Question, QuestionStatus, Turn
from nexus.control.permissions import budgets
from nexus.control.permissions.prices import MILLIONTHS
from nexus.core.clock import now
from nexus.core.contributions import Figure, Sample, SampleWindow, gauge
from nexus.core.database.functions import Lasted


def collect() -> Iterator[Metric]:
    """Yield the counts of agents, open turns and waiting questions, and the age of the oldest queued turn."""
    counts, moment = monitoring.counts(), now()
    agents = {"free": counts.agents - counts.held, "held": counts.held}
    yield gauge("nexus_pool_agents", "Living agents of the pool; those that are held are not woken.", "state", agents)
    turns = {"queued": counts.waiting, "running": counts.running}
    yield gauge("nexus_pool_turns", "Turns that have not ended, by state.", "status", turns)
    oldest = Turn.objects.queued().aggregate(at=Min("queued_at"))["at"]
    age = max(0.0, (moment - oldest).total_seconds()) if oldest else 0.0
    yield GaugeMetricFamily("nexus_oldest_queued_turn_seconds", "Age of the turn that waits longest.", value=age)
    yield _spent()
    asked = Question.objects.waiting(moment).count()
    yield GaugeMetricFamily("nexus_pool_questions", "Questions of agents that wait for a person.", value=asked)


def _spent() -> Metric:
    """Return the part of each budget that is spent."""
    labels = ["scope", "name", "measure", "period"]
    ratio = GaugeMetricFamily("nexus_pool_budget_spent_ratio", "Part of a budget that is spent.", labels=labels)
    for budget in budgets.every():
        ratio.add_metric([getattr(budget, label) for label in labels], budget.spent / budget.allowed)
    return ratio


CURRENCIES = ("USD", "EUR", "GBP", "CNY", "JPY")  # of which /metrics counts each apart
VERDICTS = tuple(status.value for status in QuestionStatus if status != QuestionStatus.ASKED)
BOUNDS = (1, 5, 15, 60, 300, 900, 1800, 3600, 14_400, 43_200, 86_400)


def _ended(window: SampleWindow) -> QuerySet[Turn]:
    """Return the turns that started and that ended within the window, newest first. Uses the index on ended_at."""
    rows = Turn.objects.filter(ended_at__gte=window.since, ended_at__lt=window.until, started_at__isnull=False)
    return rows.order_by("-ended_at")


def _waits(window: SampleWindow) -> list[Sample]:
    """Sample the time from when a turn was sent, or its agent woken, until a worker started it."""
    rows: Any = _ended(window)
    values = rows.values_list("pk", "depth", Lasted("queued_at", "started_at"))[: window.limit]
    return [Sample(pk, "woken" if depth else "sent", _seconds(waited)) for pk, depth, waited in values]


def _took(window: SampleWindow) -> list[Sample]:
    rows: Any = _ended(window)
    values = rows.values_list("pk", "status", Lasted("started_at", "ended_at"))[: window.limit]
    return [Sample(pk, status, _seconds(took)) for pk, status, took in values]


def _used(window: SampleWindow) -> list[Sample]:
    rows: Any = _ended(window)
    values = rows.values_list("pk", "input_tokens", "output_tokens")[: window.limit]
    samples = (
        Sample(f"{pk}:{kind}", kind, tokens)
        for pk, *used in values
        for kind, tokens in zip(("input", "output"), used, strict=True)
    )
    return list(samples)[: window.limit]


def _cost(window: SampleWindow) -> list[Sample]:
    rows: Any = _ended(window).exclude(cost=None)
    values = rows.values_list("pk", "currency", "cost")[: window.limit]
    return [Sample(pk, currency, cost / MILLIONTHS) for pk, currency, cost in values]


def _answered(window: SampleWindow) -> list[Sample]:
    rows: Any = Question.objects.filter(ended_at__gte=window.since, ended_at__lt=window.until)
    values = rows.order_by("-ended_at").values_list("pk", "status", Lasted("asked_at", "ended_at"))[: window.limit]
    return [Sample(pk, status, _seconds(waited)) for pk, status, waited in values]


def _seconds(length: float) -> float:
    return max(0.0, round(length, 3))


FIGURES: Sequence[Figure] = (
    Figure(
        "pool_turn_wait_seconds",
        "From when a message is sent to an agent of the pool, or something wakes it, until its turn begins.",
        ("sent", "woken"),
        (0.1, 0.5, *BOUNDS),
        _waits,
    ),
    Figure(
        "pool_turn_seconds",
        "From when a turn begins until it ends, by how it ended.",
        tuple(status.value for status in OVER),
        BOUNDS,
        _took,
    ),
    Figure(
        "pool_turn_tokens",
        "What a turn sent to its model, and got from it, as its runner tells.",
        ("input", "output"),
        (0, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        _used,
    ),
    Figure(
        "pool_turn_cost",
        "What a turn cost, as its agent or the price table says, by currency. Turns of unknown cost are left out.",
        CURRENCIES,
        (0, 0.001, 0.01, 0.1, 0.5, 1, 5, 10, 50, 100),
        _cost,
    ),
    Figure(
        "pool_question_seconds",
        "From when an agent asks a person until that is answered, or over, by what came of it.",
        VERDICTS,
        BOUNDS,
        _answered,
    ),
)
