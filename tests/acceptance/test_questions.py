"""An agent of a real pool asks, in a turn that its worker takes; a person answers, or the agent ends meanwhile."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance import hub as hubs
from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.processes import Raw, nexus
from tests.conftest import Furnish

RUNNERS = """
default = "asker"

[runners.asker]
kind = "rehearsal"

[[runners.asker.script]]
ask = { kind = "permission", title = "Run make?", detail = "It builds.", subject = "run make" }
say = "{decision}"
"""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Hub]:
    """A hub with a pool whose agents ask before they do anything."""
    home = furnish(tmp_path_factory.mktemp("pool") / "home")
    (home / "runners.toml").write_text(RUNNERS, encoding="utf-8")
    with hubs.serving(home, "--home", str(home), "--control") as served:
        yield served


@pytest.fixture
def agent_id(hub: Hub) -> str:
    """A new agent of the pool."""
    name = f"asker-{secrets.token_hex(4)}"
    assert call(hub, "pool_create_agent", agent_id=name)["ok"]
    return name


def call(hub: Hub, operation: str, **arguments: Any) -> dict[str, Any]:
    """The envelope of an operation, as the operator of this machine."""
    url = f"{hub.url}/api/v1/control/operations/{operation}"
    envelope: dict[str, Any] = httpx.post(url, json=arguments, timeout=START_SECONDS).json()
    return envelope


def asked(hub: Hub, agent_id: str) -> dict[str, Any]:
    """The question that an agent waits with, once it does."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if found := call(hub, "pool_list_questions", agent_id=agent_id)["data"]["questions"]:
            question: dict[str, Any] = found[0]
            return question
        time.sleep(0.02)
    raise AssertionError("\n".join(hub.lines))


@pytest.fixture
def turn(hub: Hub, agent_id: str) -> Iterator[Future[dict[str, Any]]]:
    """What a call answers that sends the agent work; it waits for a person."""
    with ThreadPoolExecutor(1) as sender:
        yield sender.submit(call, hub, "pool_send", agent_id=agent_id, content="Build it.", timeout_seconds=60)


def test_a_person_answers_in_a_terminal_and_the_turn_goes_on(
    hub: Hub, agent_id: str, turn: Future[dict[str, Any]]
) -> None:
    question_id = asked(hub, agent_id)["question_id"]
    shown = nexus(hub.home, "questions", "--json", "--home", str(hub.home))
    assert question_id in [row["question_id"] for row in json.loads(shown.stdout)["questions"]]
    done = nexus(hub.home, "questions", "allow", question_id, "--home", str(hub.home))
    assert done.returncode == 0, done.stderr
    assert turn.result(START_SECONDS)["data"]["content"].endswith("allowed")
    again = nexus(hub.home, "questions", "refuse", question_id, "--home", str(hub.home))
    assert again.returncode == 1
    assert "INVALID_TRANSITION" in again.stderr


def test_an_agent_that_is_destroyed_asks_no_more(hub: Hub, agent_id: str, turn: Future[dict[str, Any]]) -> None:
    question_id = asked(hub, agent_id)["question_id"]
    assert call(hub, "pool_destroy_agent", agent_id=agent_id)["data"]["success"]
    assert turn.result(START_SECONDS)["data"]["cancelled"]
    assert call(hub, "pool_get_question", question_id=question_id)["data"]["status"] == "withdrawn"
    assert call(hub, "pool_allow", question_id=question_id)["error"]["code"] == "INVALID_TRANSITION"


def test_a_killed_worker_leaves_no_question_behind(hub: Hub, agent_id: str, turn: Future[dict[str, Any]]) -> None:
    question_id = asked(hub, agent_id)["question_id"]
    os.kill(_worker(hub), signal.SIGKILL)
    assert turn.result(START_SECONDS)["error"]["code"] == "TURN_INTERRUPTED"
    assert call(hub, "pool_get_question", question_id=question_id)["data"]["status"] == "withdrawn"


def _worker(hub: Hub) -> int:
    """The process that takes the hub's turns."""
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()):
        try:
            parent = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])
            command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
        except OSError:
            continue
        if parent == hub.process.pid and "run-pool" in command:
            return pid
    raise AssertionError("no worker runs")


def test_an_agent_outside_any_pool_asks_and_a_person_elsewhere_answers(furnish: Furnish, tmp_path: Path) -> None:
    home = furnish(tmp_path / "home")
    assert nexus(home, "agents", "create", "ann").returncode == 0

    def answered() -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            listed = nexus(home, "questions", "--json")
            if listed.returncode == 0:
                question_id: str = json.loads(listed.stdout)["questions"][0]["question_id"]
                assert nexus(home, "questions", "answer", question_id, "Blue.").returncode == 0
                return question_id
        raise AssertionError("nothing was asked")

    with Raw(home, "--toolsets", "control") as agent, ThreadPoolExecutor(1) as person:
        agent.greet()
        answer = person.submit(answered)
        asked = agent.call("ask_operator", {"agent_id": "ann", "title": "Which colour?", "timeout_seconds": 120})
        assert asked["ok"], asked
        assert (asked["data"]["question_id"], asked["data"]["words"]) == (answer.result(START_SECONDS), "Blue.")
