"""Agents over a model, in the pool of a real hub: the model is a small server of the tests."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import Pool
from tests.control.openai_server import KEY, Server, calls, says, serving, stalls

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
def runners(server: tuple[Server, str]) -> Iterator[str]:
    """A runner over that model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SMALL_KEY", KEY)
        yield RUNNERS.format(url=server[1])


def test_an_agent_writes_what_it_was_sent_for(pool: Pool, server: tuple[Server, str], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Remember the milk.")
    server[0].replies = [
        calls(("read_file", {"path": "notes.txt"}), ("agent_whoami", {})),
        calls(
            ("write_file", {"path": "out/milk.txt", "content": "milk"}), ("write_file", {"path": "x", "content": ""})
        ),
        says("It is ", "written.", usage=(40, 4)),
    ]
    pool.operate("pool_create_agent", agent_id="ann", cwd=str(tmp_path), allowed_write_paths=["out"])
    answer = pool.operate("pool_send", agent_id="ann", content="Note the milk.")
    assert answer["content"] == "It is written."
    assert (tmp_path / "out" / "milk.txt").read_text() == "milk"
    assert not (tmp_path / "x").exists()
    messages = pool.operate("pool_get_messages", agent_id="ann")["messages"]
    assert [message["role"] for message in messages] == [
        *("user", "assistant", "tool", "tool"),
        *("assistant", "tool", "tool", "assistant"),
    ]
    assert json.loads(messages[3]["content"])["data"]["agent_id"] == "ann"
    assert messages[6]["content"].startswith("Error: x may not be written")
    tokens = pool.operate("pool_get_tokens", agent_id="ann")
    assert tokens["tools"] > 1_000
    log = (pool.hub.home / "logs" / "pool" / "ann.jsonl").read_text()
    assert "Note the milk." in log and KEY not in log


def messages(pool: Pool, agent_id: str) -> Iterator[dict[str, Any]]:
    """What is told of an agent, as it comes."""
    at = f"ws://{pool.hub.authority}/ws/pool/{agent_id}/"
    with connect(at, additional_headers={"x-api-key": pool.token}, close_timeout=0.1) as connection:
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


def test_a_worker_that_dies_takes_what_was_just_written_with_it(
    pool: Pool, server: tuple[Server, str], tmp_path: Path
) -> None:
    server[0].replies = [stalls("Half a "), says("Here.")]
    pool.operate("pool_create_agent", agent_id="dot", cwd=str(tmp_path))
    heard = messages(pool, "dot")
    pool.operate("pool_send", agent_id="dot", content="Hello", timeout_seconds=0)
    written(heard, "Half a ")
    pool.worker().kill()
    ends = (message["state"]["last"] for message in heard if message["type"] == "state")
    assert next(last for last in ends if last)["status"] == "interrupted"
    for message in messages(pool, "dot"):
        assert message["type"] != "draft"
        if message["type"] == "state":
            break
    assert pool.operate("pool_send", agent_id="dot", content="And now?")["content"] == "Here."
