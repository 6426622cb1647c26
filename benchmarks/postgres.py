"""A hub on PostgreSQL beside one on SQLite: what a call takes, how soon another hub wakes, and what binds.

On the server that NEXUS_TEST_SERVER names, or on a cluster of its own that writes through to the disk as SQLite does.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.harness import WARM_UP, Benchmark, Figures, Server, amount, running, seconds
from tests.postgres import SERVER, fresh_database, programs

AT_ONCE = (1, 8)  # clients of each hub, each in a workspace of its own
SQLITE, POSTGRES, TWO_HUBS = "SQLite", "PostgreSQL", "PostgreSQL, two hubs"


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By store, medians in ms, calls a second and shares of one core; nothing where PostgreSQL is not installed."""
    if not SERVER and programs() is None:
        print("PostgreSQL is not installed here.", file=sys.stderr)
        return {}
    for number in range(max(AT_ONCE)):
        (scratch / f"project-{number}").mkdir()
    with ExitStack() as stack:
        url = stack.enter_context(fresh_database(scratch, settings=()))
        file = stack.enter_context(running(scratch / "file"))
        here, there = (stack.enter_context(running(scratch / n, NEXUS_DATABASE_URL=url)) for n in ("here", "there"))
        hubs = {SQLITE: [file], POSTGRES: [here], TWO_HUBS: [here, there]}
        senders = {name: sender(hubs[name][0], scratch, 0) for name in (SQLITE, POSTGRES)}
        took: dict[str, list[float]] = {name: [] for name in senders}
        for _ in range(options.calls + WARM_UP):
            for name, send in senders.items():
                took[name].append(seconds(send))
        figures: Figures = {name: {} for name in hubs}
        for name, times in took.items():
            figures[name]["message_create, ms"] = median(times[WARM_UP:]) * 1000
        figures[TWO_HUBS] |= _wakes(there, senders[POSTGRES], max(20, options.calls // 5))
        for clients in AT_ONCE:
            for name, of_store in hubs.items():
                if clients >= len(of_store):
                    figures[name] |= _throughput(of_store, scratch, clients, options.seconds)
    return figures


def _wakes(hub: Server, send: Callable[[], None], times: int) -> dict[str, float]:
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
    while "nexus_parked_waits 1.0" not in httpx.get(f"{hub.url}/metrics").text:
        time.sleep(0.05)
    for number in range(times):
        started = time.perf_counter()
        send()
        answered = time.perf_counter()
        with came:
            assert came.wait_for(lambda wanted=number + 1: len(arrived) >= wanted, timeout=30)  # type: ignore[misc]
        after_answer.append(arrived[-1] - answered)
        after_start.append(arrived[-1] - started)
    return {
        "a listener at the other hub has the event, ms after the answer": median(after_answer) * 1000,
        "the same, ms after the call began": median(after_start) * 1000,
    }


def _throughput(hubs: list[Server], scratch: Path, clients: int, seconds: float) -> dict[str, float]:
    """Calls a second of clients at once, each in a workspace of its own, and how busy the hubs' processes are."""
    senders = [sender(hubs[number % len(hubs)], scratch, number) for number in range(clients)]
    for send in senders:
        send()
    before = sum(hub.cpu_seconds() for hub in hubs)
    calls = sent(senders, seconds)
    busy = (sum(hub.cpu_seconds() for hub in hubs) - before) / seconds * 100
    return {
        f"calls a second, {clients} workspaces": calls / seconds,
        f"hubs, % of a core, {clients} workspaces": busy,
    }


def sent(senders: list[Callable[[], None]], lasting: float) -> int:
    """Let senders send at once for so many seconds; return how many calls came to an end."""
    end = time.perf_counter() + lasting

    def work(send: Callable[[], None]) -> int:
        count = 0
        while time.perf_counter() < end:
            send()
            count += 1
        return count

    with ThreadPoolExecutor(len(senders)) as pool:
        return sum(pool.map(work, senders))


def sender(hub: Server, scratch: Path, number: int, *, project: int | None = None) -> Callable[[], None]:
    """What sends one message with every call, in a workspace of its own or that of a project.

    It keeps one connection and does little else, because it runs on the hub's cores.
    """
    connection = HTTPConnection(urlsplit(hub.url).netloc, timeout=60)
    headers = {"Content-Type": "application/json"}

    def call(name: str, arguments: bytes) -> Any:
        connection.request("POST", f"/api/v1/operations/{name}", arguments, headers)
        answer = json.loads(connection.getresponse().read())
        assert answer["ok"], answer
        return answer["data"]

    agent = f"agent-{number}"
    of_agent = json.dumps({"agent_id": agent}).encode()
    call("agent_register", of_agent)
    headers["Authorization"] = f"Bearer {call('agent_key_issue', of_agent)['api_key']}"
    root = scratch / f"project-{number if project is None else project}"
    letter = {"project_root": str(root), "from_agent_id": agent, "subject": "s", "body": "b"}
    target = {"strategy": "direct", "agent_id": agent}
    return partial(call, "message_create", json.dumps({**letter, "target": target}).encode())


def _until_the_end(listen: Callable[[], None]) -> None:
    try:
        listen()
    except httpx.TransportError:  # the hub is gone: the figures are there
        return


BENCHMARK = Benchmark(
    "postgres",
    __doc__,
    measure,
    {"--calls": amount(300, "timed"), "--seconds": amount(8.0, "of each throughput")},
    quick={"calls": 40, "seconds": 1.0},
)
if __name__ == "__main__":
    BENCHMARK.main()
