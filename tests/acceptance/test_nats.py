"""Two hubs on one PostgreSQL database that tell each other of commits by NATS: who is told, and what NATS costs when it
fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.acceptance.hub import START_SECONDS, Hub, serving
from tests.acceptance.pool import Pool, until
from tests.acceptance.test_crash import follow as read_stream
from tests.acceptance.test_model import messages, written
from tests.acceptance.test_two_hubs import mail, migrated
from tests.control.openai_server import Handler
from tests.control.openai_server import serving as serving_model
from tests.nats import Nats, Network, nats
from tests.postgres import Cluster, database_of

__all__ = ["migrated"]

SENT = 20  # messages in another workspace
FLAGS = ("--max-wait-timeout-seconds", "120")
RUNNERS = '[runners.small]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\nretries = 0\n'

Hubs = Callable[..., list[Hub]]


@pytest.fixture
def database(cluster: Cluster, migrated: Path, tmp_path: Path) -> str:
    """The URL of a database of this test's own."""
    return database_of(tmp_path, cluster.url, like=migrated)


@pytest.fixture
def hubs(database: str, tmp_path: Path) -> Iterator[Hubs]:
    """Start a hub for each address of NATS."""
    with ExitStack() as stack:

        def start(*urls: str) -> list[Hub]:
            return [
                stack.enter_context(serving(tmp_path / f"{number}", "--nats-url", url, *FLAGS, database=database))
                for number, url in enumerate(urls)
            ]

        yield start


def metric(hub: Hub, name: str) -> float:
    lines = httpx.get(f"{hub.url}/metrics").text.splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


def connected(*hubs: Hub) -> bool:
    """Whether they all reach NATS. Only a hub that waits, or has written, tries."""
    return all(metric(hub, "nexus_nats_connected") for hub in hubs)


def waiting(project: str, agent_id: str, cursor: int) -> dict[str, Any]:
    wait = {"project_root": project, "agent_id": agent_id, "stream": "workspace"}
    return {**wait, "cursor": cursor, "timeout_seconds": 100}


def test_a_hub_is_told_of_what_its_waits_concern_alone(hubs: Hubs, project: str, tmp_path: Path, database: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with nats() as server, ThreadPoolExecutor(1) as pool:
        here, there = hubs(server.url, server.url)
        for name in ("ana", "bob", "cem"):
            here.call("agent_register", agent_id=name)
        cursor = here.call("message_create", **mail(project, "bob", "before"))["event_id"]
        here.call("message_create", **mail(str(elsewhere), "cem", "before"))
        waits = pool.submit(there.call, "event_wait", **waiting(project, "bob", cursor))
        until(lambda: there.parked() == 1 and connected(here, there))
        with psycopg.connect(database, autocommit=True) as listener:
            listener.execute("LISTEN nexus_commits")
            for _ in range(SENT):
                here.call("message_create", **mail(str(elsewhere), "cem", "s"))
                here.call("message_create", **mail(project, "cem", "not for bob"))
            assert metric(there, "nexus_nats_messages_total") == 0
            sent = here.call("message_create", **mail(project, "bob", "after"))["message_id"]
            assert [event["payload"]["message_id"] for event in waits.result()["events"]][-1:] == [sent]
            assert metric(there, "nexus_nats_messages_total") > 0
            assert list(listener.notifies(timeout=0)) == [], "no commit takes the cluster's lock"


def test_nothing_is_unseen_while_nats_is_cut_off_and_after(hubs: Hubs, project: str) -> None:
    with nats() as server, closing(Network(server.port)) as network:
        here, there = hubs(server.url, f"nats://127.0.0.1:{network.port}")
        for name in ("ana", "bob"):
            here.call("agent_register", agent_id=name)
        cursor = here.call("message_create", **mail(project, "bob", "before"))["event_id"]
        seen: list[tuple[int, str]] = []
        reading = threading.Thread(target=read_stream, args=(there, cursor, seen, 9))
        reading.start()
        until(lambda: there.parked() == 1 and connected(here, there))
        sent = []

        def send() -> None:
            for _ in range(3):
                sent.append(here.call("message_create", **mail(project, "bob", "s"))["message_id"])
            until(lambda: len(seen) == len(sent))

        send()
        network.cut = True
        send()
        assert httpx.get(f"{there.url}/readyz").status_code == 200
        network.cut = False
        send()
        reading.join()
        assert [message for _, message in seen] == sent


def test_a_server_that_is_down_from_the_start_is_named_once(hubs: Hubs, project: str) -> None:
    server = Nats(credentials="ann:geheim@")
    here, there = hubs(server.url, server.url)
    for name in ("ana", "bob"):
        here.call("agent_register", agent_id=name)
    cursor = here.call("message_create", **mail(project, "bob", "before"))["event_id"]
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(there.call, "event_wait", **waiting(project, "bob", cursor))
        until(lambda: there.parked() == 1 and not connected(there))
        until(lambda: sum("NATS cannot be reached" in line for line in there.lines) == 1)
        ready = httpx.get(f"{there.url}/readyz")
        assert (ready.status_code, ready.json()["data"]["nats"]) == (200, "NATS cannot be reached")
        sent = here.call("message_create", **mail(project, "bob", "after"))["message_id"]
        assert [event["payload"]["message_id"] for event in waits.result()["events"]] == [sent]
    assert not any("geheim" in line for hub in (here, there) for line in hub.lines)


def runs_pool(hub: Hub) -> bool:
    return not any("this one stands by" in line for line in hub.lines)


def test_a_draft_reaches_clients_at_a_hub_that_does_not_run_the_worker(
    database: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    gate = threading.Event()

    def reply(handler: Handler) -> None:
        handler.begin()
        handler.chunk({"role": "assistant", "content": "Good "})
        assert gate.wait(START_SECONDS)
        handler.chunk({"content": "morning"})
        handler.chunk({}, "stop")
        handler.done((120, 7))

    with nats() as server, serving_model(reply) as (_, model), ExitStack() as stack:
        pools: list[Pool] = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir(mode=0o700)
            flags = ("--nats-url", server.url)
            pools.append(Pool(tmp_path / name, *flags, database=database, runners=RUNNERS.format(url=model)))
            stack.callback(pools[-1].close)
        two = pools[1]
        until(lambda: not runs_pool(two.hub))
        two.create("cat", model="small", cwd=str(tmp_path_factory.mktemp("cat")))
        heard, late = messages(two, "cat"), messages(two, "cat")
        assert next(heard)["type"] == "state"
        two.result("send", "/agent/cat", content="Hello", timeout_seconds=0)
        assert written(heard, "Good ")["position"] == 1
        assert written(late, "Good ")["offset"] == 0
        gate.set()
        for listener in (heard, late):
            entries = (message["entry"] for message in listener if message["type"] == "entry")
            assert next(entry for entry in entries if entry["role"] == "assistant")["content"] == "Good morning"
