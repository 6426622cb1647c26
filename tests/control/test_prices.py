"""What runs cost."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client as Browser

from nexus.control.models import PoolAgent, Turn, money
from nexus.control.permissions.prices import Cost
from tests.control.playing import at_hand, lead, pool, send, settle, take
from tests.pages import shown

__all__ = ["at_hand", "lead"]


def run(**how: Any) -> Turn:
    """A run that ended."""
    send("lead")
    turn = take()
    settle(turn, **how)
    return turn


def test_a_run_says_what_it_cost_and_by_whom(lead: PoolAgent, browser: Browser) -> None:
    known = run(input_tokens=1_000, output_tokens=10, cached_tokens=900, cost=Cost(12_345, "USD", "its agent"))
    unknown = run(input_tokens=1_000, output_tokens=10)
    row = pool("pool_get_run", run_id=known.pk)
    assert (row["cost"], row["currency"], row["cost_source"]) == (0.012345, "USD", "its agent")
    assert row["cached_tokens"] == 900
    row = pool("pool_get_run", run_id=unknown.pk)
    assert (row["cost"], row["currency"], row["cost_source"], row["cached_tokens"]) == (None,) * 4
    page = " ".join(shown(browser.get(f"/admin/control/turn/{known.pk}/change/")).split())
    assert "0.012345 USD, by its agent" in page and "(900 of the input from a cache)" in page
    page = shown(browser.get(f"/admin/control/turn/{unknown.pk}/change/"))
    assert "unknown: its agent did not tell, and its model has no known price" in page


@pytest.mark.parametrize(
    ("millionths", "said"),
    [(0, "0.00 USD"), (1, "0.000001 USD"), (1_500_000, "1.50 USD"), (10**12, "1,000,000.00 USD")],
)
def test_money_is_written_in_full(millionths: int, said: str) -> None:
    assert money(millionths, "USD") == said
