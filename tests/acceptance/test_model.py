"""Agents over a model, in the pool of a real hub: the model is a small server of the tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.sync.client import connect

from tests.acceptance import hub as hubs
from tests.acceptance.hub import START_SECONDS, Hub
from tests.conftest import Furnish
from tests.control.openai_server import KEY, Handler, Server, calls, says, serving, stalls

RUNNERS = """
[runners.small]
kind = "model"
model = "openai:small"
base_url = "{url}"
api_key_env = "SMALL_KEY"
"""


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, str]]:
    with serving(says("ok")) as started:
        yield started


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish, server: tuple[Server, str]) -> Iterator[Hub]:
    """A hub with a pool over that model."""
    home = furnish(tmp_path_factory.mktemp("pool") / "home")
    (home / "runners.toml").write_text(RUNNERS.format(url=server[1]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMALL_KEY", KEY)
        with hubs.serving(home, "--home", str(home), "--control") as served:
            yield served


def call(hub: Hub, operation: str, **arguments: Any) -> dict[str, Any]:
    """The envelope of an operation, as an operator."""
    url = f"{hub.url}/api/v1/control/operations/{operation}"
    envelope: dict[str, Any] = httpx.post(url, json=arguments, headers=token(hub), timeout=START_SECONDS).json()
    return envelope


def token(hub: Hub) -> dict[str, str]:
    """The header of who can read the home: a local request without a key is nobody's here."""
    return {"x-api-key": (hub.home / f"rpc-{hub.address[1]}.token").read_text()}


def test_an_agent_writes_what_it_was_sent_for(hub: Hub, server: tuple[Server, str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Remember the milk.")
    server[0].replies = [
        calls(("read_file", {"path": "notes.txt"}), ("agent_whoami", {})),
        calls(
            ("write_file", {"path": "out/milk.txt", "content": "milk"}), ("write_file", {"path": "x", "content": ""})
        ),
        says("It is ", "written.", usage=(40, 4)),
    ]
    assert call(hub, "pool_create_agent", agent_id="ann", cwd=str(tmp_path), allowed_write_paths=["out"])["ok"]
    answer = call(hub, "pool_send", agent_id="ann", content="Note the milk.")["data"]
    assert answer["content"] == "It is written."
    assert (tmp_path / "out" / "milk.txt").read_text() == "milk"
    assert not (tmp_path / "x").exists()
    messages = call(hub, "pool_get_messages", agent_id="ann")["data"]["messages"]
    assert [message["role"] for message in messages] == [
        *("user", "assistant", "tool", "tool"),
        *("assistant", "tool", "tool", "assistant"),
    ]
    assert json.loads(messages[3]["content"])["data"]["agent_id"] == "ann"
    assert messages[6]["content"].startswith("Error: x may not be written")
    tokens = call(hub, "pool_get_tokens", agent_id="ann")["data"]
    assert tokens["tools"] > 1_000
    log = (hub.home / "logs" / "pool" / "ann.jsonl").read_text()
    assert "Note the milk." in log and KEY not in log


def test_a_turn_is_cancelled_while_the_model_stalls_and_the_next_one_is_answered(
    hub: Hub, server: tuple[Server, str], tmp_path: Path
) -> None:
    script = server[0]
    script.replies = [stalls("Let me "), says("Here.")]
    script.seen.clear()
    script.left.clear()
    assert call(hub, "pool_create_agent", agent_id="bea", cwd=str(tmp_path))["ok"]
    with ThreadPoolExecutor(1) as sender:
        sent = sender.submit(call, hub, "pool_send", agent_id="bea", content="Think.", request_id="long")
        assert script.seen.wait(START_SECONDS)
        assert call(hub, "pool_cancel", agent_id="bea", request_id="long")["data"]["cancelled"]
        assert sent.result(START_SECONDS)["data"] == {"cancelled": True, "request_id": "long"}
    assert script.left.wait(START_SECONDS)
    assert call(hub, "pool_send", agent_id="bea", content="And now?")["data"]["content"] == "Here."


def messages(hub: Hub, agent_id: str) -> Iterator[dict[str, Any]]:
    """What is told of an agent, as it comes."""
    at = f"ws://{hub.authority}/ws/pool/{agent_id}/"
    with connect(at, additional_headers=token(hub), close_timeout=0.1) as connection:
        while True:
            yield json.loads(connection.recv(timeout=START_SECONDS))


def written(heard: Iterator[dict[str, Any]], until: str) -> dict[str, Any]:
    """The newest piece of a draft, once that reads so."""
    text = ""
    for message in heard:
        if message["type"] == "draft":
            text = text[: message["draft"]["offset"]] + message["draft"]["text"]
            if text == until:
                return dict(message["draft"])
        assert message["type"] != "entry" or message["entry"]["role"] != "assistant"
    raise AssertionError("the stream ended")


def test_what_a_model_writes_is_seen_while_it_writes(hub: Hub, server: tuple[Server, str], tmp_path: Path) -> None:
    gate = threading.Event()

    def reply(handler: Handler) -> None:
        handler.begin()
        handler.chunk({"role": "assistant", "content": "Good "})
        assert gate.wait(START_SECONDS)
        handler.chunk({"content": "morning"})
        handler.chunk({}, "stop")
        handler.done((120, 7))

    server[0].replies = [reply]
    assert call(hub, "pool_create_agent", agent_id="cat", cwd=str(tmp_path))["ok"]
    heard, late = messages(hub, "cat"), messages(hub, "cat")
    assert next(heard)["type"] == "state"
    assert call(hub, "pool_send", agent_id="cat", content="Hello", timeout_seconds=0)["ok"]
    assert written(heard, "Good ")["position"] == 1
    assert written(late, "Good ")["offset"] == 0
    gate.set()
    for listener in (heard, late):
        said = next(message["entry"] for message in listener if message["type"] == "entry")
        assert (said["position"], said["content"]) == (1, "Good morning")


def test_a_worker_that_dies_takes_what_was_just_written_with_it(
    hub: Hub, server: tuple[Server, str], tmp_path: Path
) -> None:
    server[0].replies = [stalls("Half a "), says("Here.")]
    assert call(hub, "pool_create_agent", agent_id="dot", cwd=str(tmp_path))["ok"]
    heard = messages(hub, "dot")
    assert call(hub, "pool_send", agent_id="dot", content="Hello", timeout_seconds=0)["ok"]
    written(heard, "Half a ")
    for child in psutil.Process(hub.process.pid).children(recursive=True):
        if "run-pool" in child.cmdline() and "nexus.control.worker.watchdog" not in child.cmdline():
            child.kill()
    ends = (message["state"]["last"] for message in heard if message["type"] == "state")
    assert next(last for last in ends if last)["status"] == "interrupted"
    for message in messages(hub, "dot"):
        assert message["type"] != "draft"
        if message["type"] == "state":
            break
    assert call(hub, "pool_send", agent_id="dot", content="And now?")["data"]["content"] == "Here."
