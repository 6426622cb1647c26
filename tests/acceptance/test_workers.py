"""`serve --workers`: a key's requests are one process's, whatever connection they come on, and processes may die."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.soak.__main__ import drain, hire
from benchmarks.soak.agents import Ledger
from benchmarks.soak.checks import violations
from benchmarks.soak.servers import Servers
from nexus_site.serving.workers import owner
from tests.acceptance.hub import START_SECONDS, Hub, serving
from tests.acceptance.processes import nexus
from tests.acceptance.test_fairness import call, connected
from tests.acceptance.test_mcp_http import HELLO, JSON_RPC, post
from tests.acceptance.test_serve import refused
from tests.conftest import Furnish
from tests.postgres import Cluster, database_of, store_of

WORKERS = 3
Keys = dict[int, tuple[str, str]]  # by worker, an agent and its key


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub of several processes for the tests of this module."""
    with serving(furnish(tmp_path_factory.mktemp("workers") / "home"), "--workers", str(WORKERS)) as served:
        yield served


@pytest.fixture(scope="module")
def keys(hub: Hub) -> Keys:
    return keys_of(hub)


def keys_of(hub: Hub) -> Keys:
    """An agent of each worker."""
    found: Keys = {}
    number = 0
    while len(found) < WORKERS:
        agent_id, number = f"agent-{number}", number + 1
        key = hub.key(agent_id)
        found.setdefault(owner(f"GET /mcp HTTP/1.1\r\nx-api-key: {key}\r\n\r\n".encode(), WORKERS), (agent_id, key))
    return found


def until(reached: Callable[[], object]) -> None:
    """Wait for what comes for sure; a bound against hanging, not a figure."""
    deadline = time.monotonic() + START_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def measured(hub: Hub, sample: str, **labels: str) -> dict[int, float]:
    """The values of a sample, by worker."""
    text = httpx.get(f"{hub.url}/metrics", timeout=START_SECONDS).text
    samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
    found: dict[int, float] = {}
    for each in samples:
        if each.name == sample and labels.items() <= each.labels.items():
            worker = int(each.labels["worker"])
            found[worker] = found.get(worker, 0) + each.value
    return found


def operation(hub: Hub, key: str, name: str, **arguments: Any) -> dict[str, Any]:
    """The data of a call with a key over REST, on a connection of its own."""
    url, headers = f"{hub.url}/api/v1/operations/{name}", {"x-api-key": key}
    envelope = httpx.post(url, json=arguments, headers=headers, timeout=START_SECONDS).json()
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


def processes(hub: Hub) -> dict[int, psutil.Process]:
    """The other workers, by number."""
    found = {}
    for child in psutil.Process(hub.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it just ended
            line = child.cmdline()
            if "-m" in line[:4]:  # and no guardian
                found[int(line[line.index("--number") + 1])] = child
    return found


def ended(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def letter(project: Path, sender: str, to: str) -> dict[str, Any]:
    target = {"strategy": "direct", "agent_id": to}
    return {"project_root": str(project), "from_agent_id": sender, "subject": "s", "body": "b", "target": target}


def test_a_keys_session_wait_and_stream_are_one_process_and_another_ones_message_wakes_them(
    hub: Hub, keys: Keys, tmp_path: Path
) -> None:
    (sender, sending), (agent_id, key) = keys[1], keys[2]
    before = measured(hub, "nexus_calls_total", operation="inbox_peek").get(2, 0)
    opened = post(hub, key, "initialize", **HELLO)
    session = opened.headers["mcp-session-id"]
    for _ in range(5):  # each on a connection of its own
        peeked = post(hub, key, "tools/call", session, name="inbox_peek", arguments={"agent_id": agent_id}).json()
        assert peeked["result"]["structuredContent"]["ok"]
    assert measured(hub, "nexus_calls_total", operation="inbox_peek")[2] == before + 5
    cursor = operation(hub, sending, "message_create", **letter(tmp_path, sender, agent_id))["event_id"]
    events = {"project_root": str(tmp_path), "agent_id": agent_id, "stream": "workspace", "cursor": cursor}
    stream = f"{hub.url}/api/v1/stream?cursor={cursor}&type=message.created"
    with (
        ThreadPoolExecutor(1) as pool,
        httpx.stream("GET", stream, headers={"x-api-key": key}, timeout=START_SECONDS) as followed,
    ):
        waiting = pool.submit(operation, hub, key, "event_wait", **events, timeout_seconds=30)
        until(lambda: measured(hub, "nexus_parked_waits") == {0: 0, 1: 0, 2: 2})
        sent = operation(hub, sending, "message_create", **letter(tmp_path, sender, agent_id))["message_id"]
        assert [event["payload"]["message_id"] for event in waiting.result()["events"]] == [sent]
        assert sent in next(line for line in followed.iter_lines() if line.startswith("data: "))
    until(lambda: sum(measured(hub, "nexus_parked_waits").values()) == 0)


def test_one_connection_carries_the_requests_of_many_keys_each_to_its_process(hub: Hub, keys: Keys) -> None:
    sessions = {
        number: post(hub, key, "initialize", **HELLO).headers["mcp-session-id"] for number, (_, key) in keys.items()
    }
    with httpx.Client(base_url=hub.url, limits=httpx.Limits(max_connections=1), timeout=START_SECONDS) as client:
        for _ in range(3):
            for number, (agent_id, key) in keys.items():
                peek = {"name": "inbox_peek", "arguments": {"agent_id": agent_id, "limit": 1}}
                body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": peek}
                headers = {**JSON_RPC, "x-api-key": key, "mcp-session-id": sessions[number]}
                answer = client.post("/mcp", json=body, headers=headers).json()
                assert answer["result"]["structuredContent"]["ok"], "the session is known"
                assert client.get("/api/v1/agents").is_success, "the operator's are worker 0's"
        large = {"body": "x" * 200_000}  # arrives in pieces
        for _, key in keys.values():
            assert client.post("/api/v1/operations/none", json=large, headers={"x-api-key": key}).status_code == 404


def test_the_head_of_a_request_may_come_in_pieces_and_the_next_one_at_once(hub: Hub, keys: Keys) -> None:
    async def play() -> list[bytes]:
        reader, writer = await connected(hub)
        answers = []
        for _, key in keys.values():
            head = f"GET /api/v1/agents/nobody HTTP/1.1\r\nHost: {hub.authority}\r\nx-api-key: {key}\r\n\r\n".encode()
            for start in range(0, len(head), 30):
                writer.write(head[start : start + 30])
                await writer.drain()
                await asyncio.sleep(0)
            answers.append((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])
            await reader.readuntil(b"}")
            while reader._buffer:  # type: ignore[attr-defined]
                await reader.read(2**16)
        writer.close()
        return answers

    assert asyncio.run(play()) == [b"404"] * WORKERS


def test_a_key_has_no_more_calls_waiting_than_the_setting_says_and_others_are_not_behind_them(
    home: Path, tmp_path: Path
) -> None:
    with serving(home, "--workers", str(WORKERS), "--max-waiting-calls", "10") as hub:
        keys = keys_of(hub)
        (flooding, key), (other, others) = keys[1], keys[2]

        async def play() -> None:
            streams = [await connected(hub) for _ in range(201)]
            calls = [
                asyncio.ensure_future(call(hub, stream, key, "inbox_peek", agent_id=flooding)) for stream in streams[1:]
            ]
            assert await call(hub, streams[0], others, "inbox_peek", agent_id=other) == 200
            assert set(await asyncio.gather(*calls)) == {200, 429}

        asyncio.run(play())
        refused = measured(hub, "nexus_refused_requests_total")
        assert refused[1] and not refused[0] and not refused[2]


@pytest.mark.parametrize(
    ("clients", "messages", "dying"), [(3, 8, [1]), pytest.param(6, 20, [1, 2], marks=pytest.mark.long)]
)
async def test_a_killed_worker_is_started_again_and_nothing_answered_is_lost(
    home: Path, project: str, clients: int, messages: int, dying: list[int]
) -> None:
    servers = Servers(home.parent, store_of(home).get("NEXUS_DATABASE_URL"))
    ledger, stop = Ledger(), asyncio.Event()

    async def until(reached: Callable[[], object]) -> None:
        async with asyncio.timeout(START_SECONDS):
            while not reached():
                await asyncio.sleep(0.05)

    try:
        servers.start_hub("--workers", str(len(dying) + 1))
        assert servers.hub is not None
        hub = Hub(servers.hub, servers.home, servers.url)  # type: ignore[arg-type]
        team, keys = hire(servers, ledger, on_stdio=0, over_http=clients)
        working = [asyncio.create_task(agent.live(stop)) for agent in team]
        await until(lambda: len(ledger.sent) >= messages)
        for number in dying:
            killed = processes(hub)[number]
            killed.kill()
            before = len(ledger.sent)
            await until(lambda: processes(hub).get(number, killed) != killed)  # noqa: B023
            await until(lambda: len(ledger.sent) >= before + messages)  # noqa: B023
        while not await asyncio.to_thread(servers.answers):  # it is not ready while one is missing
            pass
        stop.set()
        await asyncio.gather(*working)
        drained = await drain(servers, list(keys))
        assert servers.stop_hub(signal.SIGTERM) == 0
        assert list(violations(servers, ledger, drained, [])) == []
    finally:
        servers.close()


def test_a_killed_worker_cuts_the_connections_of_its_own_keys_alone(home: Path, tmp_path: Path) -> None:
    flags = ("--workers", str(WORKERS), "--max-wait-timeout-seconds", "120")
    with serving(home, *flags) as hub, ThreadPoolExecutor(2) as pool:
        (agent_id, key), (other, others) = (keys := keys_of(hub))[1], keys[2]
        wait = {"project_root": str(tmp_path), "stream": "workspace", "timeout_seconds": 120}
        cut = pool.submit(operation, hub, key, "event_wait", agent_id=agent_id, **wait)
        kept = pool.submit(operation, hub, others, "event_wait", agent_id=other, **wait)
        until(lambda: measured(hub, "nexus_parked_waits") == {0: 0, 1: 1, 2: 1})
        processes(hub)[1].kill()
        with pytest.raises(httpx.TransportError):
            cut.result()
        assert measured(hub, "nexus_parked_waits")[2] == 1
        # It comes on a connection that waits for the next worker.
        sent = operation(hub, key, "message_create", **letter(tmp_path, agent_id, other))["message_id"]
        assert sent in {event["payload"].get("message_id") for event in kept.result()["events"]}
        assert [line for line in hub.lines if "Worker 1 ended (137); it is started again." in line]


def test_a_signal_lets_every_worker_answer_what_waits_and_end(home: Path, tmp_path: Path) -> None:
    with serving(home, "--workers", str(WORKERS)) as hub:
        workers = processes(hub)
        assert set(workers) == {1, 2}
        keys = keys_of(hub)
        answers: list[dict[str, Any]] = []

        def park(agent_id: str, key: str) -> None:
            wait = {"project_root": str(tmp_path), "agent_id": agent_id, "stream": "workspace", "timeout_seconds": 30}
            answers.append(operation(hub, key, "event_wait", **wait))

        parking = [threading.Thread(target=park, args=each) for each in keys.values()]
        for thread in parking:
            thread.start()
        until(lambda: measured(hub, "nexus_parked_waits") == {0: 1, 1: 1, 2: 1})
        assert hub.stop(signal.SIGTERM) == 0
        for thread in parking:
            thread.join()
        assert [answer["timed_out"] for answer in answers] == [True] * WORKERS
        assert all(map(ended, workers.values()))
        assert not [line for line in hub.lines if "Traceback" in line or "ERROR" in line or "WARNING" in line]


def test_no_worker_outlives_a_hub_that_is_killed(home: Path) -> None:
    with serving(home, "--workers", "2") as hub:
        workers = processes(hub)
        hub.stop(signal.SIGKILL)
        until(lambda: all(map(ended, workers.values())))
        assert workers
    with serving(home, "--workers", "2", "--port", str(hub.address[1])) as second:
        assert httpx.get(f"{second.url}/readyz", timeout=START_SECONDS).json()["data"]["checks"]["workers"] is True


def test_workers_share_a_store_on_postgresql(cluster: Cluster, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    database = database_of(home, cluster.url)
    with serving(home, "--workers", str(WORKERS), database=database) as hub:
        keys = keys_of(hub)
        (sender, sending), (agent_id, key) = keys[1], keys[2]
        wait = {"project_root": str(tmp_path), "agent_id": agent_id, "stream": "workspace", "timeout_seconds": 30}
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(operation, hub, key, "event_wait", **wait)
            until(lambda: measured(hub, "nexus_parked_waits")[2] == 1)
            sent = operation(hub, sending, "message_create", **letter(tmp_path, sender, agent_id))["message_id"]
            assert sent in {event["payload"].get("message_id") for event in waiting.result()["events"]}


def test_it_refuses_numbers_of_workers_that_make_no_sense(home: Path) -> None:
    for given in ("0", "-1", "65", "9" * 40, "abc", ""):
        assert "CONFIG_ERROR: argument --workers: " in refused(home, f"--workers={given}")
    assert (
        "The server starts this by itself"
        in nexus(home, "run-worker", "--number", "1", "--workers", "2", "--hosts", "localhost").stderr
    )
