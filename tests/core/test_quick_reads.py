"""A quick read is made on the event loop itself, and on a thread where it would wait or take long."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import SynchronousOnlyOperation

from coordination.models import AgentKey, StoredSetting
from coordination.services import agents
from coordination.services import settings as stored_settings
from coordination.toolset import arun, run
from nexus.core import waiting
from nexus.core.clock import now
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Operation, operations
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL

COUNT = {"agent_id": "bob"}
COUNT_UP = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) SELECT max(i) FROM n"


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads on which calls are made."""
    seen: list[threading.Thread] = []

    def note(caller: Caller, operation: Operation[Any], params: Any) -> None:
        seen.append(threading.current_thread())

    monkeypatch.setattr(apps.get_app_config("coordination"), "check_call", note)
    return seen


@pytest.fixture
def settings_are_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_settings, "REFRESH_SECONDS", math.inf)


@pytest.fixture
def writer(committed: None) -> Iterator[sqlite3.Connection]:
    """Another connection to the store, which may hold the writer's lock."""
    with closing(sqlite3.connect(django_settings.NEXUS.database, isolation_level=None)) as other:
        yield other


def fill(project: str) -> None:
    """Bob has a message of each status: unread, lapsed, in flight and read."""
    for agent_id in ("ana", "bob"):
        assert run(LOCAL, "agent_register", {"agent_id": agent_id})["ok"]
    for subject in ("read", "in flight", "unread"):
        target = {"strategy": "direct", "agent_id": "bob"}
        message = {"from_agent_id": "ana", "subject": subject, "body": "b", "target": target}
        assert run(LOCAL, "message_create", {"project_root": project, **message})["ok"]
    [pulled] = run(LOCAL, "inbox_pull", {"agent_id": "bob", "limit": 1})["data"]["messages"]
    assert run(LOCAL, "inbox_ack", {"agent_id": "bob", "message_ids": [pulled["message_id"]]})["ok"]
    assert run(LOCAL, "inbox_pull", {"agent_id": "bob", "limit": 1})["ok"]


def bind() -> Caller:
    """A connection of bob's, with a key."""
    credential = agents.hash_secret("bob's")
    AgentKey.objects.create(agent_id="bob", key_hash=credential, created_at=now())
    return Caller("http", agent_id="bob", credential=credential)


async def in_thread(function: Any, *arguments: Any) -> Any:
    return await waiting.in_thread(waiting.WRITERS, partial(function, *arguments))


def test_quick_operations_only_read() -> None:
    quick = [operation for operation in operations() if operation.quick]
    assert quick
    assert all(operation.read_only for operation in quick)


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(days=2)], ids=["now", "when the lease has lapsed"])
async def test_it_answers_as_a_thread_does(
    committed: None, project: str, ahead: timedelta, monkeypatch: pytest.MonkeyPatch, settings_are_fresh: None
) -> None:
    await in_thread(fill, project)
    monkeypatch.setattr("inbox.operations.now", lambda: now() + ahead)
    for given in (COUNT, {"agent_id": "nobody"}, {}):
        assert await arun(LOCAL, "inbox_count", given) == await in_thread(run, LOCAL, "inbox_count", given)
    lanes = (await arun(LOCAL, "inbox_count", COUNT))["data"]
    assert lanes == ({"unread": 2, "in_flight": 0, "read": 1} if ahead else {"unread": 1, "in_flight": 1, "read": 1})


@pytest.mark.sqlite
async def test_it_needs_no_thread_and_no_lock(
    writer: sqlite3.Connection, project: str, threads: list[threading.Thread], settings_are_fresh: None
) -> None:
    await in_thread(fill, project)
    threads.clear()
    done, loop = threading.Event(), asyncio.get_running_loop()
    work = [loop.run_in_executor(waiting.READERS, done.wait, START_SECONDS) for _ in range(8)]
    writer.execute("BEGIN IMMEDIATE")
    try:
        async with asyncio.timeout(START_SECONDS / 2):
            assert (await arun(LOCAL, "inbox_count", COUNT))["data"]["unread"] == 1
            here = {"project_root": project, "agent_id": "cem", "stream": "workspace"}
            assert (await arun(LOCAL, "event_wait", here))["ok"]
    finally:
        done.set()
        await asyncio.gather(*work)
    assert threads == [threading.current_thread()] * 2


@pytest.mark.sqlite
async def test_it_goes_to_a_thread_while_the_store_is_locked_for_readers_too(
    committed: None, project: str, threads: list[threading.Thread], settings_are_fresh: None, monkeypatch: Any
) -> None:
    await in_thread(fill, project)
    threads.clear()

    def locked(*_: Any) -> Any:
        raise SynchronousOnlyOperation("the store cannot be read at once")

    monkeypatch.setattr("nexus.core.database.sqlite.store.look", locked)
    assert (await arun(LOCAL, "inbox_count", COUNT))["data"]["unread"] == 1
    assert [thread is threading.current_thread() for thread in threads] == [True, False]


@pytest.mark.sqlite
async def test_a_read_that_is_long_of_many_rows_or_of_damaged_text_is_left_to_a_thread(committed: None) -> None:
    rows = COUNT_UP.replace("max(i)", "i")
    assert len(store().look(rows, [20])) == 20
    for sql, bound in (
        (COUNT_UP, [1_000_000]),
        (rows, [21]),
        ("SELECT CAST(x'ff' AS TEXT)", []),
        ("SELECT json_extract('{}', CAST(x'ff' AS TEXT))", []),
    ):
        with pytest.raises(SynchronousOnlyOperation):
            store().look(sql, bound)
    for _ in range(1000):
        assert store().look(COUNT_UP, [10]) == [(10,)], "each read has its own bound"


async def test_it_refuses_at_once_what_another_connection_revoked(
    committed: None, project: str, settings_are_fresh: None
) -> None:
    await in_thread(fill, project)
    bob = await in_thread(bind)
    assert (await arun(bob, "inbox_count", COUNT))["ok"]
    assert (await arun(bob, "inbox_count", {"agent_id": "ana"}))["error"]["code"] == "NOT_OWNER"
    await in_thread(AgentKey.objects.filter(agent_id="bob").delete)
    assert (await arun(bob, "inbox_count", COUNT))["error"]["code"] == "NOT_OWNER"


async def test_it_takes_over_what_another_process_stored(
    committed: None, project: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    await in_thread(fill, project)
    stored = {"value": "7", "updated_at": now(), "updated_by": "ann"}
    await in_thread(partial(StoredSetting.objects.create, name="inbox_lease_ttl_seconds", **stored))
    settings.NEXUS = settings.NEXUS  # restored after the test
    monkeypatch.setattr(stored_settings, "_applied", {})
    monkeypatch.setattr(stored_settings, "_looked", 0.0)
    assert (await arun(LOCAL, "inbox_count", COUNT))["ok"]
    assert settings.NEXUS.inbox_lease_ttl_seconds == 7
