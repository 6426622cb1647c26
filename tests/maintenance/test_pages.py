"""Deleting what is past its window, a step at a time: what the page offers, and what it says was done."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.test import Client

from coordination.models import Event
from coordination.toolset import run
from nexus.core.operations.errors import Code, NexusError
from nexus.maintenance import retention
from nexus.maintenance.views import BATCHES
from tests.conftest import OPERATOR
from tests.pages import Ids

STEP = BATCHES * retention.BATCH  # events that a step of the page deletes


@pytest.fixture
def old(played_team: Ids) -> Iterator[int]:
    """Two months later: how many events are past their window."""
    Event.objects.bulk_create(
        Event(workspace_id=played_team["workspace"], stream="workspace", type="test.made", created_at=datetime.now(UTC))
        for _ in range(2 * STEP)
    )
    with time_machine.travel(datetime.now(UTC) + timedelta(days=60)):
        yield Event.objects.count()


def past_its_window() -> int:
    return Event.objects.filter(created_at__lt=datetime.now(UTC) - timedelta(days=30)).count()


def said(browser: Client, **form: Any) -> str:
    """The page after a form of it was sent, on one line."""
    return re.sub(r"\s+", " ", html.unescape(browser.post("/admin/retention/", form).text))


def test_it_deletes_nothing_that_was_not_counted(old: int, browser: Client) -> None:
    assert "Delete it" not in browser.get("/admin/retention/").text
    assert "Delete it" not in said(browser)  # a form without a word of what to do
    page = said(browser, what="dry")
    assert re.search("A run would delete [0-9]+ rows.", page) and "Delete it for good" in page
    assert Event.objects.count() == old


def test_it_offers_no_deletion_of_nothing(played_team: Ids, browser: Client) -> None:
    page = said(browser, what="dry")
    assert "A run would delete 0 rows." in page and "Delete it" not in page
    assert "0 rows deleted. Nothing is past its window any more." in said(browser, what="run")


def test_it_says_of_a_run_that_it_is_done_once_nothing_is_left(old: int, browser: Client) -> None:
    first = said(browser, what="run")
    told = re.search("([0-9]+) rows deleted, ([0-9]+) to go.", first)
    assert told and "data-again" in first
    deleted, left = map(int, told.groups())
    assert deleted and left == past_its_window() < old
    run(OPERATOR, "retention_prune", {"max_batches": BATCHES})  # a step whose answer never came: the hub died after it
    rest = past_its_window()
    last = said(browser, what="run", deleted=deleted)
    assert 0 < rest < left and f"{deleted + rest} rows deleted. Nothing is past its window any more." in last
    assert str(deleted + left) not in last and "data-again" not in last  # no sum with what nobody counted


def test_it_goes_on_where_a_step_failed(old: int, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(**arguments: Any) -> Any:
        raise NexusError(Code.DB_ERROR, "The store is busy.")

    with monkeypatch.context() as trouble:
        trouble.setattr(retention, "prune", busy)
        page = said(browser, what="run", deleted=STEP)
    assert "The store is busy. (DB_ERROR)" in page
    assert f"{STEP} rows deleted, then this step failed" in page and "Nothing is past its window" not in page
    assert f'name="deleted" value="{STEP}"' in page and "data-again" not in page
