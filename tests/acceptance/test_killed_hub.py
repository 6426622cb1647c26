"""SIGKILL for the hub while clients are at work, and the same hub again: answered writes stay, clients go on."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.soak.__main__ import drain, hire
from benchmarks.soak.agents import Ledger
from benchmarks.soak.checks import violations
from benchmarks.soak.servers import START_SECONDS, Servers
from tests.postgres import store_of


@pytest.mark.parametrize(("clients", "messages"), [(4, 10), pytest.param(8, 30, marks=pytest.mark.long)])
async def test_a_killed_hub_keeps_what_it_answered_and_its_clients_resume(
    home: Path, project: str, clients: int, messages: int
) -> None:
    servers = Servers(home.parent, store_of(home).get("NEXUS_DATABASE_URL"))
    ledger, stop = Ledger(), asyncio.Event()

    async def until(reached: Callable[[], object]) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not reached():
                await asyncio.sleep(0.05)

    def whole() -> bool:
        """Whether everybody was at work of every kind, and went on after the kill."""
        followed = all(ledger.followed[name] for name in keys)
        return len(ledger.sent) >= before + messages and bool(ledger.completed) and followed

    try:
        servers.start_hub()
        team, keys = hire(servers, ledger, on_stdio=0, over_http=clients)
        working = [asyncio.create_task(agent.live(stop)) for agent in team]
        await until(lambda: len(ledger.sent) >= messages)
        servers.stop_hub(signal.SIGKILL)
        before = len(ledger.sent)
        await asyncio.to_thread(servers.start_hub)
        await until(whole)
        stop.set()
        await asyncio.gather(*working)
        drained = await drain(servers, list(keys))
        assert servers.stop_hub(signal.SIGTERM) == 0
        assert list(violations(servers, ledger, drained, [])) == []
    finally:
        servers.close()
    assert ledger.cut, "clients met the kill"


def test_a_soak_ends_what_it_started_and_nothing_else(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    mine = subprocess.Popen(["sleep", "600"], env=servers.environ)
    with subprocess.Popen(["sleep", "600"]) as other:
        servers.close()
        try:
            assert mine.wait(START_SECONDS) == -signal.SIGKILL
            assert other.poll() is None
        finally:
            other.kill()
