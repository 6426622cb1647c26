"""The one place where anything waits: everybody is woken, whoever commits, and a wait costs nothing meanwhile."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from django.conf import settings
from django.db import OperationalError, connection

from coordination.log import selectors
from coordination.toolset import arun
from nexus.core import waiting
from nexus.core.database.store import store
from nexus.core.domain import domain
from tests.conftest import LOCAL, Call
from tests.core.waiting import LONG, at_rest, follow, names, page_of, parked, put

pytestmark = pytest.mark.usefixtures("committed")

FROM_AFAR = (
    "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at)"
    " SELECT number, 'workspace', 'note', '{\"name\": \"from afar\"}', 'public', created_at FROM workspaces"
)


async def newest() -> int:
    return await asyncio.to_thread(domain().newest_event_id)


async def message(project: str) -> None:
    letter = {"project_root": project, "from_agent_id": "bob", "subject": "s", "body": "b"}
    assert (await arun(LOCAL, "message_create", letter))["ok"]


async def test_it_wakes_everybody_for_a_commit_of_this_process(project: str) -> None:
    waits = [follow(project) for _ in range(20)]
    await parked(20)
    await put(project, "news")
    assert [names(await page_of(wait)) for wait in waits] == [["news"]] * 20


def another_commits() -> None:
    """As another process does: the watch cannot tell one connection from another."""
    with closing(sqlite3.connect(settings.NEXUS.database, timeout=LONG)) as store, store:
        store.execute(FROM_AFAR)


@pytest.mark.sqlite
async def test_it_wakes_for_a_commit_of_another_process(project: str, workspace: str) -> None:
    wait = follow(project)
    await parked()
    await asyncio.to_thread(another_commits)
    assert names(await page_of(wait)) == ["from afar"]


async def test_it_needs_no_look_at_the_log_for_a_commit_of_this_process(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(project)  # the log goes on from here
    async with waiting.waiter().park(lambda event: event.payload.get("name") == "x") as wait:
        monkeypatch.setattr(domain(), "events_after", lambda seen, limit: [])
        await put(project)
        assert await wait.wait(LONG)


@pytest.mark.sqlite
async def test_it_tells_each_event_once_and_in_order_whoever_committed_what(
    project: str, workspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    really = domain().events_after

    def interested(event: Any) -> bool:
        told.append(event.payload.get("name"))
        return bool(told[-1] == "last")

    await put(project)
    async with waiting.waiter().park(interested) as wait:
        # As a look finds it that began before an event of this process came past it.
        monkeypatch.setattr(domain(), "events_after", lambda seen, limit: really(seen - 1, limit))
        for name in ("first", "second", "last"):
            await put(project, name)
            if name != "last":
                await asyncio.to_thread(another_commits)
        assert await wait.wait(LONG)
        await put(project, "behind")
    assert told == ["first", "from afar", "second", "from afar", "last", "behind"]


async def test_it_misses_nothing_that_is_committed_between_a_look_and_the_park(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop_or_thread = waiting.on_loop_or_thread
    late = ["late"]

    async def commit_behind_the_look(pool: ThreadPoolExecutor, function: Callable[[], Any]) -> Any:
        seen = await on_loop_or_thread(pool, function)
        if pool is waiting.READERS and waiting.waiter().parked and isinstance(seen, tuple) and late:
            await put(project, late.pop())  # the look is over, the wait not yet begun
        return seen

    monkeypatch.setattr(waiting, "on_loop_or_thread", commit_behind_the_look)
    assert names(await page_of(follow(project))) == ["late"]
    assert not late


@pytest.mark.parametrize("others", [0, 3], ids=["kept", "no longer kept"])
async def test_it_misses_nothing_that_is_committed_between_the_call_and_the_park(
    project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    monkeypatch.setattr(waiting, "KEPT", 2)
    on_loop_or_thread = waiting.on_loop_or_thread
    late = ["late"]

    async def commit_behind_the_call(pool: ThreadPoolExecutor, function: Callable[[], Any]) -> Any:
        seen = await on_loop_or_thread(pool, function)
        if pool is waiting.READERS and isinstance(seen, dict) and late:
            await put(project, late.pop())
            for _ in range(others):
                await put(str(tmp_path))
        return seen

    async with waiting.waiter().park(lambda event: False):  # somebody watches
        monkeypatch.setattr(waiting, "on_loop_or_thread", commit_behind_the_call)
        assert names(await page_of(follow(project))) == ["late"]
    assert not late


async def test_a_direct_message_wakes_those_whom_it_concerns_alone(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_loop_or_thread = waiting.on_loop_or_thread
    looks: list[Any] = []

    async def noted(pool: ThreadPoolExecutor, function: Callable[[], Any]) -> Any:
        seen = await on_loop_or_thread(pool, function)
        looks.extend([seen] if isinstance(seen, tuple) else [])
        return seen

    for number in range(20):
        assert (await arun(LOCAL, "agent_register", {"agent_id": f"agent-{number}"}))["ok"]
    await put(project)
    start = await newest()
    crowd = [follow(project, agent_id=f"agent-{number}", cursor=start) for number in range(20)]
    await at_rest(20)
    monkeypatch.setattr(waiting, "on_loop_or_thread", noted)
    letter = {"project_root": project, "subject": "s", "body": "b", "from_agent_id": "agent-0"}
    target = {"strategy": "direct", "agent_id": "agent-7"}
    assert (await arun(LOCAL, "message_create", {**letter, "target": target}))["ok"]
    concerned = await asyncio.gather(page_of(crowd[0]), page_of(crowd[7]))
    assert [len(page["events"]) for page in concerned] == [1, 1]
    assert len(looks) == 2 and not any(crowd[number].done() for number in range(20) if number not in (0, 7))
    assert (await arun(LOCAL, "message_create", letter))["ok"]
    for number in set(range(20)) - {0, 7}:
        assert len((await page_of(crowd[number]))["events"]) == 1


async def test_it_misses_nothing_while_many_follow_and_many_write(project: str) -> None:
    async def followed(wanted: int) -> list[str]:
        seen: list[str] = []
        cursor = 0
        while len(seen) < wanted:
            page = await page_of(follow(project, cursor=cursor, limit=3))
            assert page["timed_out"] is False
            seen += names(page)
            cursor = page["next_cursor"]
        return seen

    followers = [asyncio.create_task(followed(30)) for _ in range(5)]
    await asyncio.gather(*(put(project, str(number)) for number in range(30)))
    for seen in await asyncio.gather(*followers):
        assert sorted(seen, key=int) == [str(number) for number in range(30)]


async def test_it_holds_no_thread_while_parked(project: str) -> None:
    waits = [follow(project) for _ in range(40)]
    await parked(40)
    together = threading.Barrier(4)
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(loop.run_in_executor(waiting.READERS, together.wait, LONG) for _ in range(4)))
    assert (await arun(LOCAL, "agent_list", {}))["ok"]
    assert sum(thread.name.startswith(("nexus-read_", "nexus-write_")) for thread in threading.enumerate()) <= 5
    await put(project)
    await asyncio.gather(*map(page_of, waits))


async def test_it_holds_no_lock_while_parked(project: str, workspace: str) -> None:
    wait = follow(project)
    await parked()
    await asyncio.get_running_loop().run_in_executor(waiting.READERS, lambda: None)
    with closing(sqlite3.connect(settings.NEXUS.database, timeout=LONG, isolation_level=None)) as other:
        busy, *_ = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert busy == 0  # any open read transaction would block the truncation
        other.execute("BEGIN EXCLUSIVE")
        other.execute("ROLLBACK")
    assert not wait.done()
    wait.cancel()


async def test_it_stops_watching_when_nobody_waits(project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LINGER_SECONDS", 0.1)
    wait = follow(project)
    await parked()
    await put(project)
    await page_of(wait)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(asyncio.gather(*others), LONG)  # what watched ends by itself


@pytest.mark.parametrize(("linger", "watches"), [(0.0, 3), (math.inf, 1)], ids=["later", "soon"])
async def test_it_watches_for_the_next_who_waits(
    project: str, monkeypatch: pytest.MonkeyPatch, linger: float, watches: int
) -> None:
    monkeypatch.setattr(waiting, "LINGER_SECONDS", linger)
    watch = Mock(wraps=store().watch)
    monkeypatch.setattr(store(), "watch", watch)
    cursor = 0
    for number in range(3):
        wait = follow(project, cursor=cursor)
        await parked()
        await put(project, str(number))
        page = await page_of(wait)
        assert names(page) == [str(number)]
        cursor = page["next_cursor"]
        if not linger:
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    assert watch.call_count == watches


async def test_it_lets_every_wait_answer_when_the_server_goes_down(project: str) -> None:
    waits = [follow(project) for _ in range(3)]
    await parked(3)
    waiting.waiter().close()
    assert [(await page_of(wait))["timed_out"] for wait in waits] == [True] * 3


async def test_it_is_not_woken_by_what_was_rolled_back(project: str, call: Call) -> None:
    """The event of a call that fails as a whole was never there."""
    wait = follow(project)
    await parked()
    nobody = {"strategy": "direct", "agent_id": "nobody"}
    message = {"project_root": project, "from_agent_id": "a", "subject": "s", "body": "b", "target": nobody}
    assert (await arun(LOCAL, "message_create", message))["error"]["code"] == "NOT_FOUND"
    await put(project, "real")
    assert names(await page_of(wait)) == ["real"]


async def test_it_goes_on_watching_after_the_log_could_not_be_read(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, failures = domain().events_after, [1, 2]

    def after(seen: int, limit: int) -> Any:
        if failures:
            raise OperationalError(f"failure {failures.pop()}, made by the test")
        return really(seen, limit)

    monkeypatch.setattr(domain(), "events_after", after)
    async with waiting.waiter().park(lambda event: True) as wait:
        await put(project)
        assert await wait.wait(LONG)
    assert not failures


@pytest.mark.sqlite
async def test_it_tells_who_parks_that_the_store_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(OperationalError):
        patch.setitem(connection.settings_dict, "NAME", "/nowhere/nexus.db")
        async with asyncio.timeout(LONG), waiting.waiter().park(lambda event: True):
            pass


@pytest.mark.sqlite
async def test_it_answers_a_wait_on_a_store_that_cannot_be_watched(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **more: Any) -> Any:
        raise sqlite3.OperationalError("unable to open database file")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", refuse)  # the watch's way; queries have another
        answer = await asyncio.wait_for(follow(project), LONG)
    assert answer["error"]["code"] == "DB_ERROR"


async def test_it_passes_over_the_events_before_the_one_that_woke_it(
    project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large team they are many, and each wait would read them all."""
    really, cursors = selectors.event_page, []

    def event_page(**asked: Any) -> selectors.EventPage:
        cursors.append(asked["cursor"])
        return really(**asked)

    await put(project)
    start = await newest()
    wait = follow(project, cursor=start, filters={"type": "message.created"})
    await at_rest(1)
    for _ in range(3):
        await put(project)
    monkeypatch.setattr(selectors, "event_page", event_page)
    await message(project)
    page = await page_of(wait)
    assert [event["type"] for event in page["events"]] == ["message.created"]
    assert set(cursors) == {page["next_cursor"] - 1} and page["next_cursor"] == await newest() > start + 3


async def test_it_passes_over_nothing_that_came_while_nobody_watched(project: str) -> None:
    await put(project)
    wait = follow(project, cursor=await newest(), filters={"type": "message.created"})
    await at_rest(1)
    watch = waiting.waiter()._watching
    assert watch is not None
    watch.cancel()
    await asyncio.wait([watch])
    await at_rest(1)
    await message(project)
    async with waiting.waiter().park(lambda event: False):  # a new watch begins behind that message
        await message(project)
        assert len((await page_of(wait))["events"]) == 2


def test_event_loops_may_begin_while_a_commit_is_announced() -> None:
    """A process has several: the hub's, and one for each thread that runs an agent or a command."""
    known: list[asyncio.AbstractEventLoop] = []  # they are forgotten with the last reference
    over = threading.Event()

    async def begins() -> None:
        waiting.waiter()
        known.append(asyncio.get_running_loop())

    def begin() -> None:
        while not over.is_set():
            asyncio.run(begins())

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    others = [threading.Thread(target=begin) for _ in range(3)]
    try:
        for other in others:
            other.start()
        while len(known) < 1500:
            waiting.announce_commit(Mock())
    finally:
        over.set()
        sys.setswitchinterval(usual)
        for other in others:
            other.join()
