"""What runs cost: by their agents, or by the operator's price table."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from django.test import Client as Browser

from nexus.control.models import PoolAgent, Turn, money
from nexus.control.permissions import prices
from nexus.control.permissions.prices import FILE, Cost
from nexus.control.runners_file import REHEARSAL, Model
from nexus.core.operations.errors import NexusError
from tests.control.playing import at_hand, lead, pool, send, settle, take
from tests.pages import shown

__all__ = ["at_hand", "lead"]
SMALL = Model(kind="model", name="small", model="openai:small")
TABLE = """
currency = "EUR"
date = 2026-11-01

[models."openai:small"]
input = 0.25
output = 2
cached = 0.025

[models.rehearsal]
input = 1.0
output = 1.0
"""


@pytest.fixture
def table(at_hand: Path) -> Path:
    """The price table of a home."""
    path = at_hand.parent / "home" / FILE
    path.write_text(TABLE)
    return path


def run(**how: Any) -> Turn:
    """A run that ended."""
    send("lead")
    turn = take()
    settle(turn, **how)
    return turn


def test_it_prices_tokens_by_model_or_runner(table: Path) -> None:
    small = prices.tariff_of(SMALL)
    assert small is not None
    source = "prices.toml of 2026-11-01"
    assert small.cost(1_000_000, 1_000_000, None) == Cost(2_250_000, "EUR", source)
    assert small.cost(1_000_000, 0, 800_000) == Cost(50_000 + 20_000, "EUR", source)
    assert small.cost(10, 0, 1_000) == Cost(0, "EUR", source), "no more is cached than is sent"
    assert small.cost(0, 0, None) is None, "unknown tokens have no known cost"
    rehearsal = prices.tariff_of(REHEARSAL)
    assert rehearsal is not None and rehearsal.cost(3, 4, 2) == Cost(7, "EUR", source)
    table.write_text(TABLE.replace("openai:small", "openai:large"))
    assert prices.tariff_of(SMALL) is None
    table.unlink()
    assert prices.tariff_of(SMALL) is None, "Nexus knows no prices of its own"


def test_a_table_that_is_wrong_prices_nothing_and_says_why(table: Path) -> None:
    for text in [
        "date = ",
        "[models]",
        "date = 2026-11-01\n[models.a]\ninput = -1\noutput = 1",
        "date = 2026-11-01\n[models.a]\ninput = nan\noutput = 1",
        "date = 2026-11-01\n[models.a]\ninput = inf\noutput = 1",
        "date = 2026-11-01\n[models.a]\ninput = 1e999999999999999999999\noutput = 1",
        "date = 2026-11-01\n[models.a]\ninput = 1",
        "date = 2026-11-01\ncurrency = 'dollars'",
        "date = 2026-11-01\nmodel = 1",
        "a = " + "[" * 100_000,
    ]:
        table.write_text(text)
        assert prices.tariff_of(SMALL) is None
        with pytest.raises(NexusError, match=FILE):
            prices.read()


def test_a_pipe_is_no_table(table: Path) -> None:
    table.unlink()
    os.mkfifo(table)
    with pytest.raises(NexusError, match="is no file"):
        prices.read()


def test_a_run_says_what_it_cost_and_by_whom(lead: PoolAgent, browser: Browser) -> None:
    known = run(input_tokens=1_000, output_tokens=10, cached_tokens=900, cost=Cost(12_345, "USD", "its agent"))
    unknown = run(input_tokens=1_000, output_tokens=10)
    row = pool("pool_get_run", run_id=known.pk)
    assert (row["cost"], row["currency"], row["cost_source"]) == (0.012345, "USD", "its agent")
    assert row["cached_tokens"] == 900
    row = pool("pool_get_run", run_id=unknown.pk)
    assert (row["cost"], row["currency"], row["cost_source"], row["cached_tokens"]) == (None,) * 4
    page = " ".join(shown(browser.get(f"/admin/runs/{known.pk}/")).split())
    assert "0.012345 USD, by its agent" in page and "(900 of the input from a cache)" in page
    assert "unknown: neither its agent nor prices.toml tells" in shown(browser.get(f"/admin/runs/{unknown.pk}/"))


@pytest.mark.parametrize(
    ("millionths", "said"),
    [(0, "0.00 USD"), (1, "0.000001 USD"), (1_500_000, "1.50 USD"), (10**12, "1,000,000.00 USD")],
)
def test_money_is_written_in_full(millionths: int, said: str) -> None:
    assert money(millionths, "USD") == said
