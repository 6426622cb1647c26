"""Waiting for files that another has: what ends the wait, and what it answers in vain."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import time_machine

from coordination.models import Event
from coordination.toolset import run
from nexus.core import waiting
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.reservations import patterns, services
from nexus.reservations.models import Reservation
from nexus.reservations.toolset import FILES
from tests.core.waiting import LONG, at_rest, parked
from tests.reservations.conftest import Project
from tests.reservations.git import Repo

pytestmark = pytest.mark.usefixtures("committed")


async def in_thread(call: Any, *arguments: Any, **named: Any) -> Any:
    return await waiting.in_thread(waiting.WRITERS, partial(call, *arguments, **named))


@pytest.fixture
def yard(tmp_path: Path) -> Project:
    root = tmp_path / "yard"
    root.mkdir()
    project = Project(root.resolve())
    project.reserve("ann", "src/")
    return project


def waits(project: Project, *paths: str, agent: str = "bob", **more: Any) -> asyncio.Task[dict[str, Any]]:
    """Start a call that waits."""
    asked = {"project_root": str(project.root), "agent_id": agent, "paths": list(paths), "timeout_seconds": LONG}
    return asyncio.create_task(dispatch.arun(FILES, Caller("test"), "files_reserve", {**asked, **more}))


async def test_it_waits_until_the_files_are_free(yard: Project) -> None:
    call = waits(yard, "src/app.py", "docs/")
    await parked()
    await in_thread(yard.reserve, "cas", "lib/")  # which concerns it not
    await in_thread(yard.call, "release", agent_id="ann")
    answer = await call
    assert [row["pattern"] for row in answer["data"]["reservations"]] == ["src/app.py", "/docs/"]


async def test_who_waits_is_shown_as_long_as_it_waits(yard: Project) -> None:
    def shown() -> list[Any]:
        return [row.get("waiting") for row in yard.call("who", path="src/app.py")["held"]]

    calls = {name: waits(yard, "src/app.py", agent=name) for name in ("bob", "cas")}
    await at_rest(2)
    assert sorted((await in_thread(shown))[0]) == ["bob", "cas"]
    await in_thread(yard.call, "release", agent_id="ann")
    await asyncio.wait(calls.values(), return_when=asyncio.FIRST_COMPLETED)
    [late] = [name for name, call in calls.items() if not call.done()]
    async with asyncio.timeout(LONG):
        while await in_thread(shown) != [[late]]:  # it waits for who was quicker
            await asyncio.sleep(0.01)
    refused = await in_thread(yard.refused, "reserve", agent_id="dan", paths=["src/app.py"])
    assert refused["details"]["refused"][0]["held"]["waiting"] == [late], "who does not wait is not shown"
    calls[late].cancel()  # at its end it would look again
    await asyncio.wait([calls[late]])
    with time_machine.travel(now() + timedelta(seconds=LONG + 1), tick=False):
        assert await in_thread(shown) == [None]


async def test_a_look_compares_what_is_new_beside_the_readers(yard: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def overlap(one: str, other: str) -> bool:
        if one == "**/*.py":
            compared.append((other, threading.current_thread().name.rpartition("_")[0]))
        return patterns.overlap(one, other)

    monkeypatch.setattr("nexus.reservations.selectors.overlap", overlap)
    call = waits(yard, "**/*.py")
    await parked()
    for name in ("lib", "docs"):
        await in_thread(yard.reserve, "cas", f"{name}/")
        async with asyncio.timeout(LONG):
            while not any(f"/{name}/" == other for other, _ in compared):
                await asyncio.sleep(0.001)
    for agent in ("ann", "cas"):
        await in_thread(yard.call, "release", agent_id=agent)
    assert (await call)["ok"]
    assert compared == [(pattern, "nexus-slow") for pattern in ("/src/", "/lib/", "/docs/")]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("files_reserve", {"agent_id": "bob", "paths": ["src/app.py"], "exclusive": False}),
        ("files_release", {"agent_id": "ann", "paths": ["src/app.py"]}),
        ("files_who", {"path": "src/app.py"}),
    ],
)
async def test_a_file_is_compared_with_globs_where_nobody_waits(
    yard: Project, monkeypatch: pytest.MonkeyPatch, name: str, named: dict[str, Any]
) -> None:
    await in_thread(yard.reserve, "ann", "**/*p.py", exclusive=False)
    threads: set[str] = set()

    def overlap(one: str, other: str) -> bool:
        threads.add(threading.current_thread().name.rpartition("_")[0])
        return patterns.overlap(one, other)

    monkeypatch.setattr("nexus.reservations.selectors.overlap", overlap)
    await dispatch.arun(FILES, Caller("test"), name, {"project_root": str(yard.root), **named})
    assert threads == {"nexus-slow"}


async def test_what_came_free_is_taken_where_nobody_waits(yard: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    reserve = services.reserve

    def taken(*given: Any, **named: Any) -> Any:
        threads.append(threading.current_thread().name.rpartition("_")[0])
        return reserve(*given, **named)

    call = waits(yard, "src/app.py")
    await parked()
    monkeypatch.setattr("nexus.reservations.services.reserve", taken)
    await in_thread(yard.call, "release", agent_id="ann")
    assert (await call)["ok"]
    assert threads == ["nexus-slow"]


async def test_what_an_operator_waited_for_is_noted(yard: Project) -> None:
    asked = {"project_root": str(yard.root), "agent_id": "bob", "paths": ["src/app.py"], "timeout_seconds": LONG}
    call = asyncio.create_task(dispatch.arun(FILES, Caller("test", operator="ada"), "files_reserve", asked))
    await parked()
    await in_thread(yard.call, "release", agent_id="ann")
    assert (await call)["ok"]
    acted = await in_thread(lambda: Event.objects.get(type="operator.acted").payload)
    assert (acted["operation"], acted["agent_id"], acted["events"]) == ("files_reserve", "bob", 1)


async def test_an_agent_has_one_allowance_for_all_of_its_calls(yard: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nexus.reservations.selectors.MOST_COMPARED", 40)  # one pair of those below
    call = waits(yard, "**/*.py", agent="dan")
    await parked()
    error = (await waits(yard, "**/*.md", agent="dan", timeout_seconds=0))["error"]
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "paths")
    assert "try again in a minute" in error["message"]
    error = (await waits(yard, "**/*.md", agent="eve", timeout_seconds=0))["error"]
    assert error["code"] == "FILES_RESERVED"  # another's is untouched
    await in_thread(yard.call, "release", agent_id="ann")
    assert (await call)["ok"]


@pytest.mark.usefixtures("runs_git")
async def test_it_waits_for_what_is_held_in_another_work_tree(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path.resolve() / "shop")
    repo.ok("worktree", "add", "-q", str(tmp_path / "other"))
    shop, other = Project(repo.top), Project(tmp_path.resolve() / "other")
    await in_thread(shop.reserve, "ann", "src/")
    call = waits(other, "src/b.py")
    await parked()
    await in_thread(shop.call, "release", agent_id="ann")
    assert (await call)["ok"]


async def test_it_waits_for_the_end_of_a_handoff_that_it_does_not_see(yard: Project) -> None:
    def act(name: str, **arguments: Any) -> Any:
        envelope = run(Caller("test"), name, {"project_root": str(yard.root), **arguments})
        assert envelope["ok"], envelope
        return envelope["data"]

    def claim() -> str:
        target = {"strategy": "direct", "agent_id": "ann"}
        assert run(Caller("test"), "agent_register", {"agent_id": "ann"})["ok"]
        handoff_id: str = act("handoff_create", from_agent_id="eve", target=target, visibility="private")["handoff_id"]
        act("handoff_claim", handoff_id=handoff_id, agent_id="ann")
        yard.reserve("ann", "lib/", handoff_id=handoff_id)
        return handoff_id

    handoff_id = await in_thread(claim)
    call = waits(yard, "lib/b.py")
    await parked()
    (wait,) = waiting.waiter().parked
    assert wait.keys.isdisjoint(waiting.EVERY), "and it is found by its project, not asked about each event"
    await in_thread(act, "handoff_complete", handoff_id=handoff_id, agent_id="ann")
    assert (await call)["ok"]


async def test_it_waits_until_a_lease_ends(yard: Project) -> None:
    call = waits(yard, "src/app.py")
    await parked()
    await in_thread(lambda: Reservation.objects.update(expires_at="2026-01-01T00:00:00Z"))  # no event tells of it
    await in_thread(yard.reserve, "cas", "lib/", seconds=10)
    assert (await call)["ok"]


async def test_it_tells_who_has_them_when_the_time_is_over(yard: Project) -> None:
    error = (await waits(yard, "src/app.py", timeout_seconds=0.1))["error"]
    assert error["code"] == "FILES_RESERVED"
    assert error["details"]["refused"][0]["held"]["agent_id"] == "ann"


async def test_it_gives_the_files_to_one_of_those_that_wait(yard: Project) -> None:
    calls = [waits(yard, "src/app.py", agent=agent) for agent in ("bob", "cas", "dan")]
    await parked(3)
    await in_thread(yard.call, "release", agent_id="ann")
    first, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    assert [call.result()["ok"] for call in first] == [True]
    for call in calls:
        call.cancel()
    [(_, pattern)] = await in_thread(yard.held)
    assert pattern == "src/app.py"


async def test_it_reserves_nothing_for_a_client_that_gave_up(yard: Project) -> None:
    call = waits(yard, "src/app.py")
    await parked()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await in_thread(yard.call, "release", agent_id="ann")
    assert await in_thread(yard.held) == []
