"""The pool in a process of one's own, which is killed in the middle of what it does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.log import opened
from tests.acceptance.pool import RUNNERS, until
from tests.acceptance.processes import environment


class InProcess:
    """A process with a pool over a home."""

    def __init__(self, home: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.in_process"],
            cwd=ROOT,
            env=environment(home, NEXUS_CONTROL="true"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, method: str, **parameters: Any) -> None:
        """Call, and do not wait for the answer."""
        bound = {"timeout_seconds": START_SECONDS} if method == "send" else {}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([method, {**parameters, **bound}]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """The next answer; None where it was killed before."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answered: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return answered

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A call's answer."""
        self.ask(method, **parameters)
        answer = self.answer()
        assert answer is not None
        return answer

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@pytest.fixture
def begin(home: Path) -> Iterator[Any]:
    """Starts such processes over one home."""
    (home / "runners.toml").write_text(RUNNERS.replace('"rehearsal"\n[', '"stalls"\n['))
    begun: list[InProcess] = []

    def start() -> InProcess:
        begun.append(InProcess(home))
        return begun[-1]

    yield start
    for each in begun:
        each.kill()


def told(home: Path, type: str) -> list[str]:
    """The turns that the events of a type tell of, each by its request_id."""
    with opened(home) as store:
        rows = store.execute(f"SELECT payload FROM events WHERE type = '{type}' ORDER BY event_id").fetchall()
    payloads = [json.loads(row[0]) if isinstance(row[0], str) else row[0] for row in rows]
    return [payload["request_id"] for payload in payloads]


def test_a_turn_that_a_killed_process_was_at_is_told_and_taken_no_more(begin: Any, home: Path) -> None:
    first = begin()
    first.call("create_agent", agent_id="ann", cwd=str(home))
    assert first.call("send", agent_id="ann", content="hello", request_id="before")["content"]
    first.ask("send", agent_id="ann", content="stall", request_id="mine")
    until(lambda: "mine" in told(home, "turn.started"))
    first.kill()
    second = begin()
    assert second.call("send", agent_id="ann", content="stall", request_id="mine") == {"error": "TURN_INTERRUPTED"}
    assert "went on with on" in second.call("send", agent_id="ann", content="on", request_id="after")["content"]
    assert told(home, "turn.started") == ["before", "mine", "after"] and told(home, "turn.interrupted") == ["mine"]
    [ann] = second.call("list_agents")["agents"]
    assert (ann["agent_id"], ann["cwd"]) == ("ann", str(home))
    said = [row["content"] for row in second.call("get_messages", agent_id="ann")["messages"] if row["role"] == "user"]
    assert said == ["hello", "stall", "on"]


@pytest.mark.parametrize(
    ("at", "before", "is_interrupted"),
    [
        ("claim", False, False),  # in the transaction that stores the turn: it never was
        ("_claimed", True, True),  # behind its commit
        ("settle", False, False),
        pytest.param("claim", True, False, marks=pytest.mark.long),
        pytest.param("settle", True, True, marks=pytest.mark.long),
    ],
)
def test_wherever_a_process_is_killed_a_turn_is_taken_once(
    begin: Any, home: Path, at: str, before: bool, is_interrupted: bool
) -> None:
    first = begin()
    first.call("create_agent", agent_id="ann", cwd=str(home))
    first.call("die", at=at, before=before)
    first.ask("send", agent_id="ann", content="hello", request_id="mine")
    got = first.answer()
    answer = begin().call("send", agent_id="ann", content="hello", request_id="mine")
    assert got in (None, answer), "who sends it again has the same answer"
    if is_interrupted:
        assert answer == {"error": "TURN_INTERRUPTED"}
    else:
        assert "went on with hello" in answer["content"]
    assert told(home, "turn.started") == ["mine"]
    assert told(home, "turn.interrupted") + told(home, "turn.done") == ["mine"]
