"""The trace of a run: what is kept of its traffic, and who reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client as Browser

from nexus.control.models import PoolAgent
from nexus.control.runners import traffic
from nexus.control.runners.traffic import Log, Wire
from tests.control.playing import at_hand, command, lead, pool, refused, send, settle, take
from tests.pages import shown

__all__ = ["at_hand", "lead"]
SECRET = "hunter2-hunter2-hunter2"
HOSTILE = "<script>alert(1)</script>"


def run(agent_id: str = "lead") -> str:
    """A run that ended; its run_id."""
    send(agent_id)
    turn = take()
    settle(turn)
    return turn.pk


def update(kind: str, text: Any) -> dict[str, Any]:
    return {"method": "session/update", "params": {"update": {"sessionUpdate": kind, "content": {"text": text}}}}


def receive(wire: Wire, message: Any) -> None:
    wire.received(json.dumps(message).encode(), message if isinstance(message, dict) else None)


def texts(run_id: str) -> list[str]:
    return [line["text"] for line in pool("pool_get_trace", run_id=run_id)["lines"]]


def test_a_secret_in_pieces_is_redacted(lead: PoolAgent) -> None:
    run_id = run()
    wire = Wire(Log("lead", SECRET, run=run_id))
    wire.sent({"method": "session/prompt", "params": {"prompt": SECRET}})
    for at in range(0, len(SECRET), 3):
        receive(wire, update("agent_message_chunk", SECRET[at : at + 3]))
    receive(wire, update("agent_thought_chunk", SECRET[:10]))
    receive(wire, update("agent_thought_chunk", SECRET[10:]))
    odds: list[Any] = [
        {"method": "x"},
        {"params": []},
        update("agent_message_chunk", [1]),
        update("plan", "x"),
        [1],
        "x",
    ]
    for odd in odds:
        receive(wire, odd)
    wire.received(b"no JSON \xff", None)
    receive(wire, update("agent_message_chunk", "the end"))
    wire.flush()
    lines = pool("pool_get_trace", run_id=run_id)["lines"]
    assert SECRET[:5] not in json.dumps(lines)
    assert [line["what"] for line in lines] == ["sent", *["received"] * 10]
    assert [json.loads(line["text"])["params"]["update"]["content"]["text"] for line in (*lines[1:3], lines[-1])] == [
        "***", "***", "the end",
    ]  # fmt: skip


def test_runs_of_an_agent_do_not_mix_and_come_in_parts(lead: PoolAgent) -> None:
    first, second = run(), run()
    for number in range(5):
        Log("lead", run=first if number % 2 else second).write("sent", f"line {number}")
    assert texts(first) == ["line 1", "line 3"]
    part = pool("pool_get_trace", run_id=second, limit=2)
    assert [line["text"] for line in part["lines"]] == ["line 0", "line 2"]
    part = pool("pool_get_trace", run_id=second, after=part["next"], limit=2)
    assert [line["text"] for line in part["lines"]] == ["line 4"] and part["next"] is None
    assert refused("pool_get_trace", run_id="turn_none")["code"] == "NOT_FOUND"


def test_what_a_run_sends_without_end_is_left_out(lead: PoolAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MOST_OF_RUN", 2_000)
    flooding, other = run(), run()
    log = Log("lead", run=flooding)
    for _ in range(1_000):
        log.write("received", "y" * 100)
    Log("lead", run=other).write("sent", "hello")
    assert log.path.stat().st_size < 3_000
    assert texts(flooding)[-1] == "The run's further traffic." and texts(other) == ["hello"]


def test_a_log_that_was_turned_over_or_damaged_is_read_as_far_as_it_goes(
    lead: PoolAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = run()
    log = Log("lead", run=run_id)
    assert texts(run_id) == []
    log.write("sent", "one")
    with log.path.open("ab") as file:
        file.write(b"\xff[[[" + f'"run": "{run_id}"\n"run": "{run_id}"\n'.encode())
    monkeypatch.setattr(traffic, "LARGEST_FILE", 10)
    log.write("sent", "two")
    assert texts(run_id) == ["one", "two"]


def test_the_page_shows_it(lead: PoolAgent, browser: Browser) -> None:
    run_id = run()
    assert "Nothing is kept" in shown(browser.get(f"/admin/runs/{run_id}/trace/"))
    log = Log("lead", run=run_id)
    log.write("request", HOSTILE, method="POST", url="http://localhost/v1")
    for number in range(60):
        log.write("received", f"line {number}.")
    page = browser.get(f"/admin/runs/{run_id}/trace/").content.decode()
    assert HOSTILE not in page and "POST http://localhost/v1" in page and "line 48." in page and "line 49." not in page
    assert "line 59." in shown(browser.get(f"/admin/runs/{run_id}/trace/?after=50"))
    assert f"/admin/runs/{run_id}/trace/" in shown(browser.get(f"/admin/control/turn/{run_id}/change/"))


def test_the_command_shows_it(committed: None, project: str, configure: Callable[..., None]) -> None:
    configure(control=True)
    pool("pool_create_agent", agent_id="lead", cwd=project)
    run_id = run()
    Log("lead", run=run_id).write("sent", "hello there")
    assert "hello there" in command("runs", "trace", run_id)
