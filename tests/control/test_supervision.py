"""The hub's side of the pool: of several servers over one store one runs it, and the end that is asked for is its."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from nexus.client.tokens import FORM
from nexus.control.agents import pool
from nexus.control.agents import pool as server
from nexus.control.agents.pool import SERVER
from nexus.control.models import PoolAgent
from nexus.control.rpc import agent_stream
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.worker import store_access, supervision
from nexus.control.worker.supervision import supervise
from nexus.core.clock import now
from nexus.core.database.base import ExclusiveLock
from nexus.core.database.store import store
from nexus.core.instance import Holder
from nexus.core.operations.errors import Code, NexusError
from nexus.core.waiting import READERS, WRITERS, in_thread, waiter
from tests.control.pool import ADMIN, create
from tests.core.waiting import LONG


async def test_one_that_stands_by_runs_no_worker_and_hears_no_end_that_is_asked_of_another(
    committed: None,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    configure(control=True, home=tmp_path)
    loop, signals = asyncio.get_running_loop(), asyncio.Queue[int]()
    works, looks = asyncio.Queue[datetime](), asyncio.Queue[bool]()
    asked = server.is_asked_to_end

    async def worked(since: datetime) -> int:
        works.put_nowait(since)
        await asyncio.Event().wait()
        return 0

    def looked(after: int, upto: int) -> bool:
        found = asked(after, upto)
        loop.call_soon_threadsafe(looks.put_nowait, found)
        return found

    monkeypatch.setattr(supervision, "_worked", worked)
    monkeypatch.setattr(server, "is_asked_to_end", looked)
    monkeypatch.setattr(os, "kill", lambda pid, number: signals.put_nowait(number))
    other = await in_thread(READERS, lambda: store().exclusive_lock(SERVER))
    assert other is not None
    serving = asyncio.create_task(supervise())
    while "Another server runs this store's pool" not in caplog.text:
        await asyncio.sleep(0)
    await in_thread(WRITERS, lambda: server.ask_to_end("ops"))
    moment = now()
    assert works.empty()
    await asyncio.to_thread(other.release)
    assert await works.get() > moment, "temporary agents of before are another's"
    assert not await looks.get()
    async with waiter().park(lambda event: event.type == server.END_ASKED):
        await in_thread(WRITERS, lambda: server.ask_to_end("ops"))
        assert await signals.get() == signal.SIGTERM
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


def test_a_server_leaves_the_token_of_another_that_serves_its_home(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(control=True, home=tmp_path)
    for pid, name in ((os.getpid(), "rpc-9000.token"), (os.getppid(), "rpc.token")):
        monkeypatch.setattr(supervision, "running", lambda home, pid=pid: Holder(pid, "127.0.0.1", 9000))
        assert supervision.token_file().token_path == tmp_path / name


async def test_the_token_of_a_run_is_in_a_file_that_its_end_removes(
    committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ENDPOINT, "token", None)
    configure(control=True, home=tmp_path / "home", rpc_port=9000)
    supervision.admit()
    file = tmp_path / "home" / "rpc-9000.token"
    first = file.read_text()
    assert first == ENDPOINT.token and FORM.fullmatch(first)
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    for written, left in ((None, False), ("nxk_" + "o" * 43, True)):  # left by this run, or another server's since
        serving = asyncio.create_task(supervision.supervise())
        await asyncio.sleep(0)
        if written:
            file.write_text(written)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        assert file.exists() == left
        supervision.admit()
        assert file.read_text() == ENDPOINT.token == first, "it is the same at each start"


def test_a_token_that_cannot_be_written_ends_the_start(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ENDPOINT, "token", None)
    configure(control=True, home=tmp_path / "home")
    (tmp_path / "home" / "rpc.token").mkdir(parents=True, mode=0o700)
    with pytest.raises(NexusError) as caught:
        supervision.admit()
    assert caught.value.code == Code.CONFIG_ERROR and "home/rpc.token" in caught.value.message
    assert ENDPOINT.token is None


async def test_what_agents_were_told_of_the_end_of_an_earlier_server_is_over(
    committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(control=True, home=tmp_path)
    begun = asyncio.Event()

    async def worked(since: datetime) -> int:
        begun.set()
        return await asyncio.Future[int]()

    def shut_down() -> PoolAgent:
        create("ann")
        return pool.shut_down(ADMIN, "ann")

    monkeypatch.setattr(supervision, "_worked", worked)
    ann = await in_thread(WRITERS, shut_down)
    assert ann.should_shutdown
    serving = asyncio.create_task(supervise())
    await begun.wait()
    await ann.arefresh_from_db()
    assert not ann.should_shutdown
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


async def test_one_that_lost_its_lock_alone_goes_on_and_steps_down_where_another_took_it(
    committed: None,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    configure(control=True, home=tmp_path)
    exclusive_lock, taken = store().exclusive_lock, asyncio.Queue[Cut]()
    loop, works = asyncio.get_running_loop(), asyncio.Queue[str]()

    def cut(kind: str) -> ExclusiveLock | None:
        if holder := exclusive_lock(kind):
            loop.call_soon_threadsafe(taken.put_nowait, holder := Cut(holder))
        return holder

    async def worked(since: datetime) -> int:
        works.put_nowait("begun")
        try:
            await asyncio.Event().wait()
        finally:
            works.put_nowait("ended")
        return 0

    monkeypatch.setattr(store(), "exclusive_lock", cut)
    monkeypatch.setattr(store_access, "LOOK_SECONDS", 0)
    monkeypatch.setattr(supervision, "_worked", worked)
    serving = asyncio.create_task(supervise())
    first = await taken.get()
    assert await works.get() == "begun"
    first.is_held = False
    second = await taken.get()
    assert works.empty(), "nothing of the pool has noticed"
    others: list[ExclusiveLock | None] = []
    second.between = lambda: others.append(exclusive_lock(SERVER))
    second.is_held = False
    assert await works.get() == "ended"
    assert others[0] is not None
    assert "another server took it" in caplog.text
    await asyncio.to_thread(others[0].release)
    assert await works.get() == "begun"
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


@pytest.mark.usefixtures("starts_processes")
async def test_a_worker_that_gives_no_sign_of_life_is_ended_with_what_it_started(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(control=True, home=tmp_path)
    silent = f"""
import subprocess, sys, time
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
open({str(tmp_path / "left")!r}, "w").write(str(left.pid))
print("{{}}", flush=True)
time.sleep(3600)
"""
    monkeypatch.setattr(supervision, "python", lambda *_: [sys.executable, "-c", silent])
    monkeypatch.setattr(supervision, "HANG_SECONDS", 0.1)
    assert await supervision._worked(now()) == 128 + signal.SIGKILL
    assert not psutil.pid_exists(int((tmp_path / "left").read_text()))


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("ends", "grace", "left"), [("sys.stdin.read(); file.write('asked')", LONG, "asked"), ("time.sleep(3600)", 0.1, "")]
)
async def test_a_worker_is_asked_to_end_and_killed_when_its_time_is_over(
    configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ends: str, grace: float, left: str
) -> None:
    configure(control=True, home=tmp_path, pool_stop_seconds=0)
    heard, pids = asyncio.Event(), tmp_path / "pid"
    script = f"""
import os, sys, time
open({str(pids)!r}, "w").write(str(os.getpid()))
print("{{}}", flush=True)
with open({str(tmp_path / "left")!r}, "w") as file:
    {ends}
"""
    monkeypatch.setattr(supervision, "GRACE_SECONDS", grace)
    monkeypatch.setattr(supervision, "python", lambda *_: [sys.executable, "-c", script])
    monkeypatch.setattr(agent_stream.DRAFTS, "hear", lambda line: heard.set())
    working = asyncio.create_task(supervision._worked(now()))
    await heard.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert (tmp_path / "left").read_text() == left
    assert not psutil.pid_exists(int(pids.read_text()))


class Cut:
    """A lock whose connection can be lost, and what happens before it is taken anew."""

    def __init__(self, holder: ExclusiveLock) -> None:
        self.holder, self.is_held = holder, True
        self.between: Callable[[], object] = lambda: None

    def held(self) -> bool:
        return self.is_held

    def release(self) -> None:
        self.holder.release()
        between, self.between = self.between, lambda: None
        between()
