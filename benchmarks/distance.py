"""A hub far from its PostgreSQL server: round trips of a send, and sends a second, by the distance and the writers.

A proxy between them delays what passes by half of a round trip each way. `round trips` counts how often a call's
connection turned from sending to receiving. All of it runs on this machine's processors: where they are busy, more
writers can send no more.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psutil

from benchmarks.harness import WARM_UP, Benchmark, Figures, Server, amount, running, seconds, sender, sent
from tests.ports import free_port
from tests.postgres import SERVER, fresh_database, programs

DISTANCES = (0.0, 1.0, 2.0, 5.0, 10.0)  # milliseconds of a round trip
MOST = 8  # writers


class Proxy:
    """Carries connections to a server, later by half of `milliseconds` each way; counts their turns."""

    def __init__(self, host: str, port: int) -> None:
        self.milliseconds, self.turns = 0.0, 0
        self.port = free_port()
        self._to = host, port
        self._loop, self._end = asyncio.new_event_loop(), asyncio.Event()

    def run(self) -> None:
        """Carry until `stop`."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def _serve(self) -> None:
        await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        await self._end.wait()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._to)
        asks = [True]

        def asked() -> None:
            self.turns += not asks[0]
            asks[0] = True

        def answered() -> None:
            asks[0] = False

        with contextlib.suppress(asyncio.CancelledError):  # at the end, where asyncio would log it
            await asyncio.gather(self._pass_on(reader, back, asked), self._pass_on(there, writer, answered))

    async def _pass_on(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, seen: Callable[[], None]) -> None:
        """Pass bytes on in order, each as late as it is from its arrival."""
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                seen()
                self._loop.call_later(self.milliseconds / 2000, to.write, data)
        self._loop.call_later(self.milliseconds / 2000, to.close)


@contextmanager
def between(url: str) -> Iterator[tuple[str, Proxy]]:
    """A proxy before the server of a database's URL, and the URL that leads through it."""
    parts = urlsplit(url)
    assert parts.hostname and parts.port
    proxy = Proxy(parts.hostname, parts.port)
    thread = threading.Thread(target=proxy.run)
    thread.start()
    try:
        yield url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}"), proxy
    finally:
        proxy.stop()
        thread.join()


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By distance, round trips and sends a second; nothing where PostgreSQL is not installed."""
    if not SERVER and programs() is None:
        print("PostgreSQL is not installed here.", file=sys.stderr)
        return {}
    for number in range(MOST):
        (scratch / f"project-{number}").mkdir()
    figures: Figures = {}
    with ExitStack() as stack:
        url, proxy = stack.enter_context(between(stack.enter_context(fresh_database(scratch, settings=()))))
        hubs = [stack.enter_context(running(scratch / name, NEXUS_DATABASE_URL=url)) for name in ("here", "there")]
        for distance in DISTANCES:
            proxy.milliseconds = distance
            one = figures[f"{distance:g} ms"] = {}
            busy: dict[str, float] = {}
            send = sender(hubs[0], scratch, 0)
            turns, took = [], []
            for _ in range(options.calls + WARM_UP):
                before = proxy.turns
                took.append(seconds(send))
                turns.append(proxy.turns - before)
            one["a send, ms"] = median(took[WARM_UP:]) * 1000
            one["its round trips"] = median(turns[WARM_UP:])
            for count in (1, 2):
                for what, writers, projects in (
                    ("one writer", 1, 1),
                    (f"{MOST} writers in {MOST} workspaces", MOST, MOST),
                    (f"{MOST} writers in one", MOST, 1),
                ):
                    if writers >= count:
                        line = f"sends a second, {what}, {'two hubs' if count == 2 else 'one hub'}"
                        one[line], busy[line] = throughput(hubs[:count], scratch, writers, projects, options.seconds)
            one |= {f"processors busy, %, {line.removeprefix('sends a second, ')}": busy[line] for line in busy}
    return figures


def throughput(hubs: list[Server], scratch: Path, writers: int, projects: int, lasting: float) -> tuple[float, float]:
    """Sends a second of writers at once, and how busy the machine's processors were, in percent."""
    senders = [
        sender(hubs[number % len(hubs)], scratch, number, project=number % projects) for number in range(writers)
    ]
    for send in senders:
        send()
    psutil.cpu_percent()
    return sent(senders, lasting) / lasting, psutil.cpu_percent()


BENCHMARK = Benchmark(
    "distance",
    __doc__,
    measure,
    {"--calls": amount(60, "timed"), "--seconds": amount(5.0, "of each throughput")},
    quick={"calls": 10, "seconds": 1.0},
)
if __name__ == "__main__":
    BENCHMARK.main()
