"""A slow operation holds up no other write of its process."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest

from coordination.toolset import COORDINATION, arun
from nexus.core import waiting
from nexus.core.operations.caller import Caller
from nexus.core.operations.parameters import Params
from nexus.core.operations.replies import Data
from tests.conftest import LOCAL
from tests.core.waiting import LONG

OPERATOR = Caller("test", operator="olga")
SLOW_THREADS = 2


@pytest.mark.parametrize("name", ["retention_prune", "database_reset", "shared_md_render"])
async def test_it_lets_others_write_while_it_runs(committed: None, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started, gate = threading.Event(), threading.Event()

    def take_long(p: Params, caller: Caller) -> Data:
        started.set()
        assert gate.wait(LONG)
        return {}

    operation = replace(COORDINATION.operations[name], params=Params, call=take_long)
    monkeypatch.setitem(COORDINATION.operations, name, operation)
    slow = asyncio.create_task(arun(OPERATOR if operation.operator_only else LOCAL, name, {}))
    try:
        assert await asyncio.to_thread(started.wait, LONG)
        async with asyncio.timeout(LONG):
            assert (await arun(LOCAL, "agent_register", {"agent_id": "ann"}))["ok"]
            await waiting.in_thread(waiting.WRITERS, lambda: None)
        assert not slow.done()
    finally:
        gate.set()
    assert (await slow)["ok"]


@pytest.mark.parametrize("name", ["retention_prune", "database_reset"])
async def test_what_takes_minutes_holds_up_no_other_slow_work(
    committed: None, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate = threading.Semaphore(0), threading.Event()

    def take_minutes(p: Params, caller: Caller) -> Data:
        begun.release()
        assert gate.wait(LONG)
        return {}

    operation = replace(COORDINATION.operations[name], params=Params, call=take_minutes)
    monkeypatch.setitem(COORDINATION.operations, name, operation)
    short = replace(COORDINATION.operations["shared_md_render"], params=Params, call=lambda p, caller: {})
    monkeypatch.setitem(COORDINATION.operations, "shared_md_render", short)
    calls = [asyncio.create_task(arun(OPERATOR, name, {})) for _ in range(SLOW_THREADS)]
    try:
        for _ in calls:
            assert await asyncio.to_thread(begun.acquire, timeout=LONG)
        async with asyncio.timeout(LONG):
            assert (await arun(LOCAL, "shared_md_render", {}))["ok"]
    finally:
        gate.set()
    assert all(answer["ok"] for answer in await asyncio.gather(*calls))
