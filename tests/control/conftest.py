"""A pool that answers: its wire without the worker that takes the turns, and that worker alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.runners import rehearsal
from nexus.control.worker import scheduling, store_access
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from tests.control.pool import Take, at_work
from tests.control.wire import TOKEN, Wire


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look often, also where no event tells them to."""
    for module in (scheduling, store_access):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.05)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent without a directory of its own gets no clone of this repository."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def rpc(committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """JSON-RPC over a store of the test's own."""
    configure(control=True)
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)
    yield Wire()


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> Callable[[Take], None]:
    """Let a function take all turns."""
    return lambda take: monkeypatch.setattr(rehearsal, "take", take)


@pytest.fixture
async def worker(committed: None, configure: Callable[..., None]) -> AsyncIterator[Worker]:
    """A worker of this process, at work."""
    configure(control=True, pool_turns=4, pool_stop_seconds=60)
    async with at_work(Worker(now()), at_once=True) as working:
        yield working
