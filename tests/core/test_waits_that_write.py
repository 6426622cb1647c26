"""An operation that writes and then waits: it is performed once, and whoever gives up changes nothing after that."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from mcp.client.client import Client

from coordination.log.emit import emit
from coordination.models import Event
from coordination.toolset import COORDINATION
from mcp_bridge.server import build_server
from nexus.core import waiting
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations import dispatch, registry
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Requirement, Toolset, Wait
from nexus.core.operations.replies import Data
from tests.conftest import LOCAL
from tests.core.waiting import LONG, parked
from tests.store import failing

pytestmark = pytest.mark.usefixtures("committed")


class Ask(Params):
    timeout_seconds: int = LONG


@dataclass
class Toys:
    """A toolset whose one operation puts a question into an outbox and waits for an answer."""

    toolset: Toolset
    looks: list[int] = field(default_factory=list)  # the questions there were at each look
    gate: threading.Event = field(default_factory=threading.Event)  # closed: the performed call does not end
    started: threading.Event = field(default_factory=threading.Event)
    allowed: bool = True

    async def ask(self, **arguments: Any) -> Any:
        return await dispatch.arun(self.toolset, LOCAL, "ask", arguments)


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Toys]:
    monkeypatch.setattr(registry, "TOOLSETS", dict(registry.TOOLSETS))
    monkeypatch.setattr("nexus.core.rest.viewsets.TOOLSETS", registry.TOOLSETS)
    toys = Toys(Toolset("toys", "Questions and answers."))
    toys.gate.set()

    def heard(p: Ask, caller: Caller) -> Data:
        answers = count("answered")
        toys.looks.append(count("asked"))  # last: whoever waits for a look goes on then
        return {"answers": answers, "timed_out": False}

    def admitted(operation: Any, p: Ask, caller: Caller) -> None:
        if not toys.allowed:
            raise NexusError(Code.NOT_OWNER, "Not any more.")

    wait = Wait[Ask](
        timeout=lambda p: p.timeout_seconds,
        interested=lambda p: lambda event: True,
        look=heard,
        done=lambda data: bool(data["answers"]),
        expired=lambda p, data: {**data, "timed_out": True},
    )

    @toys.toolset.operation(Ask, Code.NOT_OWNER, requires=(Requirement("whoever may", admitted),), wait=wait)
    def ask(p: Ask, caller: Caller) -> Data:
        """Ask."""
        toys.started.set()
        assert toys.gate.wait(LONG)
        say("asked")
        return {"answers": count("answered"), "timed_out": False}

    yield toys
    toys.gate.set()


def say(type: str) -> None:
    with write():
        emit(workspace_id=None, stream="agent", type=type, actor="ann", payload={}, moment=now())


def count(type: str) -> int:
    return Event.objects.filter(type=type).count()


async def said(type: str) -> int:
    return await waiting.in_thread(waiting.READERS, lambda: count(type))


async def committed_by_somebody(type: str) -> None:
    await waiting.in_thread(waiting.WRITERS, lambda: say(type))


async def looked(toys: Toys, times: int) -> None:
    async with asyncio.timeout(LONG):
        while len(toys.looks) < times:
            await asyncio.sleep(0.001)


async def given_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def nothing_more_happens(toys: Toys) -> None:
    """Whatever the process still had in hand is done, and nobody waits."""
    for pool in (waiting.WRITERS, waiting.READERS, waiting.SLOW):
        await waiting.in_thread(pool, lambda: None)
    assert not waiting.waiter().parked
    looks, asked = len(toys.looks), await said("asked")
    await committed_by_somebody("answered")
    await waiting.in_thread(waiting.READERS, lambda: None)
    assert (len(toys.looks), await said("asked")) == (looks, asked)


async def test_it_writes_once_however_often_it_looks(toys: Toys) -> None:
    call = asyncio.create_task(toys.ask())
    await looked(toys, 1)
    for number in range(2, 6):
        await committed_by_somebody("noise")
        await looked(toys, number)
    await committed_by_somebody("answered")
    assert (await call)["data"] == {"answers": 1, "timed_out": False}
    assert set(toys.looks) == {1}


async def test_it_writes_once_from_a_thread_too(toys: Toys) -> None:
    call = asyncio.create_task(asyncio.to_thread(dispatch.run, toys.toolset, LOCAL, "ask", {}))
    for number in range(1, 4):
        await looked(toys, number)
        await committed_by_somebody("noise")
    await committed_by_somebody("answered")
    assert (await asyncio.wait_for(call, LONG))["data"]["answers"] == 1
    assert set(toys.looks) == {1}


@pytest.mark.parametrize("seconds", [0, -1])
async def test_it_writes_once_for_a_snapshot(toys: Toys, seconds: int) -> None:
    assert (await toys.ask(timeout_seconds=seconds))["data"]["timed_out"]
    assert (await said("asked"), toys.looks) == (1, [])


async def test_it_does_nothing_for_a_client_that_gave_up_before_its_turn(toys: Toys) -> None:
    gate = threading.Event()
    ahead = asyncio.get_running_loop().run_in_executor(waiting.WRITERS, gate.wait, LONG)
    call = asyncio.create_task(toys.ask())
    await asyncio.sleep(0)
    await given_up(call)
    gate.set()
    await ahead
    await nothing_more_happens(toys)
    assert (await said("asked"), toys.looks) == (0, [])


async def test_it_writes_once_for_a_client_that_gives_up_while_it_writes(toys: Toys) -> None:
    toys.gate.clear()
    call = asyncio.create_task(toys.ask())
    await asyncio.to_thread(toys.started.wait, LONG)
    await given_up(call)
    toys.gate.set()
    await nothing_more_happens(toys)
    assert (await said("asked"), toys.looks) == (1, [])


async def test_it_changes_nothing_after_a_client_gave_up_waiting(toys: Toys) -> None:
    call = asyncio.create_task(toys.ask())
    await looked(toys, 1)
    await given_up(call)
    await nothing_more_happens(toys)
    assert await said("asked") == 1


def test_it_changes_nothing_after_a_command_was_interrupted(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[bool] = []
    really = waiting.Parked.wait

    async def wait(parked: waiting.Parked, seconds: float) -> bool:
        signal.raise_signal(signal.SIGINT)  # as Ctrl-C does
        try:
            return await really(parked, seconds)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    monkeypatch.setattr(waiting.Parked, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        dispatch.run(toys.toolset, LOCAL, "ask", {"timeout_seconds": 5})
    assert ended, "the wait ends with the command, and not with its time"


async def test_it_changes_nothing_after_an_http_client_hung_up(toys: Toys) -> None:
    from nexus_site.asgi import application

    hung_up = asyncio.Event()
    arriving = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Any:
        if arriving:
            return arriving.pop()
        await hung_up.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        raise AssertionError("nobody is there")

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope: Any = {"type": "http", "http_version": "1.1", "method": "POST", "scheme": "http", "headers": headers}
    scope |= {"query_string": b"", "path": "/api/v1/toys/operations/ask", "raw_path": b"", "root_path": ""}
    scope |= {"client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8420)}
    serving = asyncio.create_task(application(scope, receive, send))
    await looked(toys, 1)
    hung_up.set()
    await asyncio.wait_for(serving, LONG)
    await nothing_more_happens(toys)
    assert await said("asked") == 1


async def test_it_changes_nothing_after_an_mcp_client_cancelled(toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COORDINATION.operations, "ask", toys.toolset.find("ask"))
    async with Client(build_server(lambda context: LOCAL)) as client:
        call = asyncio.create_task(client.call_tool("ask", {}))
        await looked(toys, 1)
        await given_up(call)
        async with asyncio.timeout(LONG):
            while waiting.waiter().parked:
                await asyncio.sleep(0.001)
        await nothing_more_happens(toys)
    assert await said("asked") == 1


async def test_it_answers_with_what_it_has_when_the_server_goes_down(toys: Toys) -> None:
    call = asyncio.create_task(toys.ask())
    await parked()
    waiting.waiter().close()
    assert (await asyncio.wait_for(call, LONG))["data"]["timed_out"]
    assert (await toys.ask())["data"]["timed_out"]  # and one that comes after that does not wait
    assert await said("asked") == 2


async def test_it_asks_at_each_look_whether_the_caller_still_may(toys: Toys) -> None:
    call = asyncio.create_task(toys.ask())
    await looked(toys, 1)
    toys.allowed = False
    await committed_by_somebody("answered")
    assert (await call)["error"]["code"] == "NOT_OWNER"
    assert len(toys.looks) == 1
    assert (await toys.ask())["error"]["code"] == "NOT_OWNER"
    assert await said("asked") == 1


async def test_it_does_not_ask_to_be_called_again_after_it_has_written(
    toys: Toys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that meets a busy store is tried again: a client told to send the call again would write twice."""
    monkeypatch.setattr("nexus.core.operations.dispatch.time.sleep", lambda seconds: None)
    ask = toys.toolset.operations["ask"]
    assert ask.wait is not None
    look, failures = ask.wait.look, iter(range(dispatch.ATTEMPTS + 1))
    assert look is not None

    def busy_at_first(p: Any, caller: Caller) -> Data:
        if next(failures, None) is not None:
            raise failing("busy")
        return look(p, caller)

    monkeypatch.setitem(toys.toolset.operations, "ask", replace(ask, wait=replace(ask.wait, look=busy_at_first)))
    call = asyncio.create_task(toys.ask())
    await looked(toys, 1)
    await committed_by_somebody("answered")
    assert (await call)["data"] == {"answers": 1, "timed_out": False}
    assert await said("asked") == 1
