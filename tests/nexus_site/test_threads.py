"""Which thread does what in a hub: nobody waits for another's slow page while a thread is free."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.backends import ModelBackend

from coordination.toolset import COORDINATION
from nexus.control.agents import pool
from nexus.control.models import PoolAgent, PoolWorktree
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.runners.git import GitFailed
from nexus.control.toolset import CONTROL
from nexus.control.worktrees import trees
from nexus.core import waiting
from nexus.core.clock import now
from nexus.core.operations import dispatch, outside
from nexus.core.operations.caller import LOCAL_OPERATOR, Caller
from nexus.dashboard import site
from nexus.web.login import FREE, Throttle
from nexus_site.asgi import DJANGO_THREADS, Hub
from nexus_site.serving.django import Django
from tests.control.pool import create
from tests.control.wire import TOKEN

VERBS = ("keep", "discard")
HUNG = "/hung"  # a directory on a mount whose server is gone
PATIENCE = 60  # a bound against hanging, not a figure


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What slow work waits for."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def hung(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have one directory not answer; whether it was asked for."""
    realpath, is_dir, asked = os.path.realpath, Path.is_dir, threading.Event()

    def hangs(path: Any) -> Any:
        if str(path).startswith(HUNG):
            asked.set()
            assert gate.wait(PATIENCE)
        return path

    monkeypatch.setattr(os.path, "realpath", lambda path, **how: realpath(hangs(path), **how))
    monkeypatch.setattr(Path, "is_dir", lambda path: is_dir(hangs(path)))
    return asked


async def test_a_slow_page_holds_up_no_other_request(gate: threading.Event) -> None:
    begun = threading.Event()

    class Pages(Django):
        async def handle(self, scope: Any, receive: Any, send: Any) -> None:
            await sync_to_async(scope["page"])()

    def slow() -> None:
        begun.set()
        assert gate.wait(PATIENCE)

    pages = Pages(2)
    stuck = asyncio.create_task(pages({"page": slow, "path": ""}, None, None))
    await asyncio.to_thread(begun.wait)
    for _ in range(10):
        await asyncio.wait_for(pages({"page": int, "path": ""}, None, None), PATIENCE / 2)
    assert not stuck.done()
    gate.set()
    await stuck


@pytest.mark.parametrize(
    "page", ["control/poolagent/add/", "review/{key}/", *(f"act/minutes/?{verb}" for verb in VERBS)]
)
async def test_pages_that_wait_for_git_hold_up_no_other(
    committed: None,
    tmp_path: Path,
    gate: threading.Event,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    page: str,
) -> None:
    begun = threading.Event()

    def waits(*_: Any, **__: Any) -> None:
        begun.set()
        assert gate.wait(PATIENCE)
        raise GitFailed("it was ended")

    for name in ("make", "survey", "keep", "removal"):
        monkeypatch.setattr(trees, name, waits)
    configure(control=True)
    key = await waiting.in_thread(waiting.WRITERS, partial(with_worktree, tmp_path))
    row = await PoolWorktree.objects.aget(agent=key)
    address, _, verb = f"/admin/{page.format(key=key)}".partition("?")
    form = {"agent_id": "bea", "preset": "worker", "model": "rehearsal", "cwd": str(tmp_path), "worktree": "true"}
    if verb:
        form = {"do": f"pool_worktree_{verb}", "on": row.pk, "asked": "1"}
    transport = httpx.ASGITransport(app=Hub(), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.get("/admin/coordination/agent/add/")  # a form, with its cookie
        token = {"x-csrftoken": client.cookies[settings.CSRF_COOKIE_NAME]}
        ask = client.get if page.startswith("review/") else partial(client.post, headers=token, data=form)
        stuck = [asyncio.create_task(ask(address)) for _ in range(DJANGO_THREADS + 1)]
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        answer = await asyncio.wait_for(client.get("/admin/help/"), PATIENCE / 2)
        assert answer.status_code == 200 and not any(task.done() for task in stuck)
        gate.set()
        assert {answer.status_code for answer in await asyncio.gather(*stuck)} <= {200, 302}


def with_worktree(place: Path) -> str:
    """An agent that ended and left a worktree; its key."""
    agent = at_worktree("ann", place)
    pool.end(agent, None, now(), why="a test")
    return agent.pk


def at_worktree(name: str, place: Path) -> PoolAgent:
    """An agent with a worktree."""
    place.mkdir(exist_ok=True)
    agent = create(name, cwd=str(place))
    PoolWorktree.objects.create(
        worktree_id=f"tree {name}", agent=agent, path=str(place), git_dir=f"{place}/.git", branch="x", base="x",
        origin="x", origin_git_dir="x", created_at=now(),
    )  # fmt: skip
    return agent


async def test_agents_leave_threads_to_one_another_and_to_operators(
    committed: None,
    tmp_path: Path,
    gate: threading.Event,
    configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, come = list[str](), threading.Semaphore(0)

    def waits(tree: trees.Tree) -> trees.Survey:
        begun.append(Path(tree.path).name)
        come.release()
        assert gate.wait(PATIENCE)
        return trees.NOTHING

    async def look(agent_id: str, by: str | None) -> Any:
        caller = Caller("test", operator="ada") if by is None else Caller("test", agent_id=by)
        return await dispatch.arun(CONTROL, caller, "pool_worktree_diff", {"agent_id": agent_id})

    monkeypatch.setattr(trees, "survey", waits)
    configure(control=True)
    names = ["ann", "bob", "cid", "dan"]
    for name in names:
        await waiting.in_thread(waiting.WRITERS, partial(at_worktree, name, tmp_path / name))
    left = asyncio.create_task(look("ann", "ann"))
    assert await asyncio.to_thread(come.acquire, timeout=PATIENCE)
    left.cancel()  # its thread goes on
    calls = [asyncio.create_task(look(name, name)) for name in [*["ann"] * 8, *names]]
    for _ in range(2):
        assert await asyncio.to_thread(come.acquire, timeout=PATIENCE)
    assert len(set(begun)) == len(begun) == 3, "one of each agent"
    calls.append(asyncio.create_task(look("dan", None)))
    assert await asyncio.to_thread(come.acquire, timeout=PATIENCE)
    assert begun[3:] == ["dan"]
    gate.set()
    assert all(answer["ok"] for answer in await asyncio.gather(*calls))


@pytest.mark.parametrize("by", ["bob", None], ids=["another agent", "an operator"])
async def test_paths_of_one_agent_that_do_not_answer_hold_up_no_other(
    committed: None,
    tmp_path: Path,
    gate: threading.Event,
    hung: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    by: str | None,
) -> None:
    monkeypatch.setattr(outside, "TIME_LIMIT_SECONDS", PATIENCE)

    async def resolve(caller: Caller, path: str) -> Any:
        return await dispatch.arun(COORDINATION, caller, "workspace_resolve", {"project_root": path})

    paths = [f"{HUNG}/{number}" for number in range(100)]
    stuck = [asyncio.create_task(resolve(Caller("http", agent_id="ann"), path)) for path in paths]
    assert await asyncio.to_thread(hung.wait, PATIENCE)
    caller = Caller("http", agent_id=by) if by else Caller("http", operator="ada")
    assert (await asyncio.wait_for(resolve(caller, str(tmp_path)), PATIENCE / 2))["ok"]
    gate.set()
    await asyncio.gather(*stuck)


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_who_looks_after_the_hub_waits_for_nobody(committed: None, gate: threading.Event, path: str) -> None:
    hub = Hub()

    def block(pool: ThreadPoolExecutor, threads: int) -> None:
        for _ in range(threads):
            pool.submit(gate.wait, PATIENCE)

    block(hub.django.threads, DJANGO_THREADS)
    block(waiting.READERS, 4)
    block(waiting.WRITERS, 1)
    block(waiting.SLOW, 3)
    transport = httpx.ASGITransport(app=hub, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await asyncio.wait_for(client.get(path), PATIENCE / 2)
    assert answer.status_code == 200
    gate.set()


async def test_passwords_that_are_checked_hold_up_no_other_request(
    committed: None, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def waits(*_: Any, **__: Any) -> None:
        begun.set()
        assert gate.wait(PATIENCE)

    monkeypatch.setattr(ModelBackend, "authenticate", waits)
    monkeypatch.setattr(site, "THROTTLE", Throttle(lambda: 0.0))
    form = {"username": "ada", "password": "wrong"}
    transport = httpx.ASGITransport(app=Hub(), client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.get("/admin/coordination/agent/add/")  # a form, with its cookie
        token = {"x-csrftoken": client.cookies[settings.CSRF_COOKIE_NAME]}
        tries = [
            asyncio.create_task(client.post("/admin/login/", headers=token, data=form))
            for _ in range(DJANGO_THREADS + 1)
        ]
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        answer = await asyncio.wait_for(client.get("/admin/help/"), PATIENCE / 2)
        assert answer.status_code == 200 and not any(task.done() for task in tries)
        gate.set()
        codes = [answer.status_code for answer in await asyncio.gather(*tries)]
    assert sorted(codes) == [*[200] * FREE, *[429] * (DJANGO_THREADS + 1 - FREE)]


@pytest.mark.parametrize("named", [{"cwd": HUNG}, {"allowed_write_paths": [HUNG]}])
async def test_a_directory_that_does_not_answer_holds_up_whoever_named_it_alone(
    committed: None, tmp_path: Path, hung: object, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch,
    named: dict[str, Any],
) -> None:  # fmt: skip
    """Over JSON-RPC, and in the form of the dashboard."""
    monkeypatch.setattr(outside, "TIME_LIMIT_SECONDS", 0.05)
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)
    configure(control=True)
    transport = httpx.ASGITransport(app=Hub(), client=("127.0.0.1", 1))
    async with (
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        asyncio.timeout(PATIENCE / 2),
    ):
        call = {"jsonrpc": "2.0", "id": 1, "method": "create_agent", "params": {"preset": "sandboxed", **named}}
        answer = await client.post("/rpc", json=call, headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.json()["error"]["code"] == -32602 and "does not answer" in answer.text
        await client.get("/admin/coordination/agent/add/")  # a form, with its cookie
        form = {"agent_id": "bea", "preset": "sandboxed", "model": "rehearsal", **named}
        page = await client.post(
            "/admin/control/poolagent/add/",
            data=form,
            headers={"x-csrftoken": client.cookies[settings.CSRF_COOKIE_NAME]},
        )
        assert "does not answer" in page.text
        await waiting.in_thread(waiting.WRITERS, partial(create, "ann", cwd=str(tmp_path)))


@pytest.mark.parametrize("named", ["cwd", "allowed_write_paths"])
async def test_the_process_of_an_agent_waits_for_what_does_not_answer_before_it_holds_the_store(
    committed: None, tmp_path: Path, gate: threading.Event, hung: threading.Event, configure: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch, named: str,
) -> None:  # fmt: skip
    configure(control=True)
    monkeypatch.setattr(outside, "TIME_LIMIT_SECONDS", PATIENCE)
    order = {"preset": "sandboxed", "cwd": str(tmp_path), named: [HUNG] if named != "cwd" else HUNG}
    creating = asyncio.create_task(
        dispatch.aperform(CONTROL, Caller("stdio", operator=LOCAL_OPERATOR), "pool_create_agent", order)
    )
    assert await asyncio.to_thread(hung.wait, PATIENCE)
    await waiting.in_thread(waiting.WRITERS, partial(create, "ann", cwd=str(tmp_path)))
    assert not creating.done()
    gate.set()
    await creating
