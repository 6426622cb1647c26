"""A hub on PostgreSQL beside one on SQLite: what a call takes, how soon another hub wakes, and what binds.

python -m benchmarks.postgres
python -m benchmarks.postgres --quick --json

On the server that NEXUS_TEST_SERVER names, or on a cluster of its own that writes through to the disk as SQLite does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx

from tests.acceptance.hub import Hub, serving
from tests.postgres import fresh_database

WARM_UP = 20
AT_ONCE = (1, 8)  # clients of each hub, each in a workspace of its own
STORES = ("SQLite", "PostgreSQL")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=8, help="of each throughput (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    calls, seconds = (40, 1.0) if options.quick else (options.calls, options.seconds)
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        figures = measure(Path(scratch), calls, seconds)
    print(
        json.dumps(figures) if options.json else "\n".join(f"{name:52}{value:>10}" for name, value in figures.items())
    )


def measure(scratch: Path, calls: int, seconds: float) -> dict[str, float]:
    """Medians in ms, ratios, calls a second and shares of one core."""
    for number in range(max(AT_ONCE)):
        (scratch / f"project-{number}").mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(scratch, settings=()))
        file = stack.enter_context(serving(scratch / "file"))
        here, there = (stack.enter_context(serving(scratch / name, database=url)) for name in ("here", "there"))
        hubs = dict(zip(STORES, (file, here), strict=True))
        senders = {name: stack.enter_context(_sender(hub, scratch, 0)) for name, hub in hubs.items()}
        took: dict[str, list[float]] = {name: [] for name in STORES}
        for _ in range(calls + WARM_UP):  # in turn, so that a slow moment of the machine hits both alike
            for name, send in senders.items():
                took[name].append(_seconds(send))
        median = {name: statistics.median(values[WARM_UP:]) * 1000 for name, values in took.items()}
        figures = {f"message_create on {name}, ms": value for name, value in median.items()}
        figures["PostgreSQL to SQLite"] = median[STORES[1]] / median[STORES[0]]
        answer, event = _wakes(there, senders[STORES[1]], max(20, calls // 5))
        figures["listener at another hub, ms after the answer"] = answer
        figures["listener at another hub, ms after the call began"] = event
        for name, hub in hubs.items():
            for clients in AT_ONCE:
                figures |= _throughput(f"{clients} workspaces, {name}", [hub], scratch, clients, seconds)
        figures |= _throughput("8 workspaces, two hubs, PostgreSQL", [here, there], scratch, max(AT_ONCE), seconds)
        one, eight = (figures[f"{clients} workspaces, {STORES[1]}: calls a second"] for clients in AT_ONCE)
        figures["eight workspaces to one, PostgreSQL"] = eight / one
    return {name: round(value, 2) for name, value in figures.items()}


def _wakes(hub: Hub, send: Callable[[], None], times: int) -> tuple[float, float]:
    """How long after the sender's answer, and after its call began, a listener at `hub` has the event; medians, ms."""
    after_answer, after_start = [], []
    arrived: list[float] = []
    came = threading.Condition()

    def listen() -> None:
        with httpx.stream("GET", f"{hub.url}/api/v1/stream?type=message.created", timeout=None) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    with came:
                        arrived.append(time.perf_counter())
                        came.notify()

    threading.Thread(target=lambda: _until_the_end(listen), daemon=True).start()
    while not hub.parked():
        time.sleep(0.05)
    for number in range(times):
        started = time.perf_counter()
        send()
        answered = time.perf_counter()
        with came:
            assert came.wait_for(lambda wanted=number + 1: len(arrived) >= wanted, timeout=30)  # type: ignore[misc]
        after_answer.append(arrived[-1] - answered)
        after_start.append(arrived[-1] - started)
    return statistics.median(after_answer) * 1000, statistics.median(after_start) * 1000


def _throughput(what: str, hubs: list[Hub], scratch: Path, clients: int, seconds: float) -> dict[str, float]:
    """Calls a second of clients at once, each in a workspace of its own, and how busy the hubs' processes are."""
    with ExitStack() as stack:
        senders = [stack.enter_context(_sender(hubs[n % len(hubs)], scratch, n)) for n in range(clients)]
        for send in senders:
            send()
        before = sum(map(_cpu_seconds, hubs))
        end = time.perf_counter() + seconds

        def work(send: Callable[[], None]) -> int:
            count = 0
            while time.perf_counter() < end:
                send()
                count += 1
            return count

        with ThreadPoolExecutor(clients) as pool:
            calls = sum(pool.map(work, senders))
    busy = (sum(map(_cpu_seconds, hubs)) - before) / seconds * 100
    return {f"{what}: calls a second": calls / seconds, f"{what}: hubs, % of a core": busy}


class _sender:  # reads as the function it is
    """A client that sends one message in a workspace of its own with every call."""

    def __init__(self, hub: Hub, scratch: Path, number: int) -> None:
        self.client = httpx.Client(base_url=hub.url, timeout=60)
        target = {"strategy": "direct", "agent_id": f"agent-{number}"}
        hub.call("agent_register", agent_id=f"agent-{number}")
        letter = {"from_agent_id": f"agent-{number}", "subject": "s", "body": "b", "target": target}
        self.letter = {"project_root": str(scratch / f"project-{number}"), **letter}

    def __enter__(self) -> Callable[[], None]:
        return self._send

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def _send(self) -> None:
        assert self.client.post("/api/v1/operations/message_create", json=self.letter).json()["ok"]


def _until_the_end(listen: Callable[[], None]) -> None:
    try:
        listen()
    except httpx.TransportError:  # the hub is gone: the figures are there
        return


def _cpu_seconds(hub: Hub) -> float:
    fields = Path(f"/proc/{hub.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _seconds(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
