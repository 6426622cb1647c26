"""What happens to the team while it works."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.soak.agents import Ledger
from benchmarks.soak.servers import Servers

KILL_SECONDS = 5.0
HOUR = 3600
FULL_CALLS = 20  # calls that must meet the full disk before it is freed
FULL_SECONDS = 60  # it is freed then in any case


@dataclass
class Memory:
    """What one process held, sampled over its life: (seconds since the start of the soak, bytes)."""

    name: str
    samples: list[tuple[float, int]] = field(default_factory=list)


class Troubles:
    """The schedule, and what was done so far."""

    def __init__(self, servers: Servers, ledger: Ledger, seconds: float, spared: str) -> None:
        self.servers, self.ledger, self.seconds = servers, ledger, seconds
        self.spared = spared  # the key of the stdio server that lives on, so that its memory can be watched
        self.done: list[str] = []
        self.kills = 0
        self.memory: dict[int, Memory] = {}
        self.started = time.monotonic()

    async def happen(self) -> None:
        """All of it, in `seconds`."""
        killing, watching = asyncio.create_task(self._kill()), asyncio.create_task(self._watch_memory())
        plan = (
            (0.12, self._move_clock(HOUR)),
            (0.20, self._move_clock(0)),
            (0.28, self._move_clock(-HOUR)),
            (0.36, self._move_clock(0)),
            (0.42, self._restart_hub(signal.SIGTERM)),
            (0.55, self._fill_disk()),
            (0.75, self._restart_hub(signal.SIGKILL)),
        )
        for moment, trouble in plan:
            await self._until(moment)
            await trouble
        await self._until(1)
        for task in (killing, watching):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(killing, watching)

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0, self.started + moment * self.seconds - time.monotonic()))

    async def _kill(self) -> None:
        """A stdio server every few seconds, while its agent is at work."""
        while True:
            await asyncio.sleep(KILL_SECONDS)
            victims = [process for process, key in self.servers.stdio_processes() if key != self.spared]
            if victims:
                random.choice(victims).kill()
                self.kills += 1

    async def _move_clock(self, offset: int) -> None:
        self.servers.set_clock(offset)
        self.done.append(f"clock moved to {offset // HOUR:+} h")

    async def _restart_hub(self, number: signal.Signals) -> None:
        started = time.monotonic()
        code = await asyncio.to_thread(self.servers.stop_hub, number)
        stopped = time.monotonic()
        if number == signal.SIGTERM and code:
            self.ledger.violations.append(f"the hub ended with exit code {code} on SIGTERM")
        await asyncio.to_thread(self.servers.start_hub)
        ready = time.monotonic()
        self.done.append(f"hub ended by {number.name} in {stopped - started:.1f} s, back in {ready - stopped:.1f} s")

    async def _fill_disk(self) -> None:
        """Leave nothing of the small file system until clients have met that, then free it."""
        if not self.servers.home.is_mount():
            why = "it is the server's" if self.servers.database_url else "this user may not mount a small file system"
            self.done.append(f"disk not filled: {why}")
            return
        ballast, before = self.servers.home / "ballast", self.ledger.refused["DB_ERROR disk_full"]
        self.ledger.disk_is_full = True
        deadline = time.monotonic() + FULL_SECONDS
        while self.ledger.refused["DB_ERROR disk_full"] - before < FULL_CALLS and time.monotonic() < deadline:
            await asyncio.to_thread(_fill, ballast)  # again and again: a checkpoint may have given some back
            await asyncio.sleep(0.2)
        met = self.ledger.refused["DB_ERROR disk_full"] - before
        if not met:
            self.ledger.violations.append("the disk was filled and no call met it")
        if await asyncio.to_thread(self.servers.answers):
            self.ledger.violations.append("/readyz says ready on a full disk")
        ballast.unlink()
        await asyncio.sleep(1)  # for the answers under way
        self.ledger.disk_is_full = False
        self.done.append(f"disk filled and freed: {met} calls refused")

    async def _watch_memory(self) -> None:
        while True:
            watched = [(process, "stdio") for process, key in self.servers.stdio_processes() if key == self.spared]
            with contextlib.suppress(psutil.Error):
                if self.servers.ready and self.servers.hub is not None:
                    watched.append((psutil.Process(self.servers.hub.pid), "hub"))
            for process, name in watched:
                with contextlib.suppress(psutil.Error):
                    size = process.memory_info().rss
                    memory = self.memory.setdefault(process.pid, Memory(name))
                    memory.samples.append((time.monotonic() - self.started, size))
            await asyncio.sleep(1)


def _fill(ballast: Path) -> None:
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 65536)
    with ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 512)
