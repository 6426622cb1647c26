"""An agent of a real pool asks in a turn; a person answers, or the worker is killed meanwhile."""

from __future__ import annotations

import json
import secrets
from concurrent.futures import Future
from typing import Any

import pytest

from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import Pool, until
from tests.acceptance.processes import nexus

RUNNERS = """
default = "asker"

[runners.asker]
kind = "rehearsal"

[[runners.asker.script]]
ask = { kind = "permission", title = "Run make?", detail = "It builds.", subject = "run make" }
say = "{decision}"
"""
Asked = tuple[str, Future[dict[str, Any]]]


@pytest.fixture
def asked(pool: Pool) -> Asked:
    """The id of a question that an agent waits with, and what the call answers that sent the agent work."""
    agent_id = f"asker-{secrets.token_hex(4)}"
    pool.operate("pool_create_agent", agent_id=agent_id, worktree=False)
    turn = pool.threads.submit(pool.send, agent_id, "Build it.", timeout_seconds=60)

    def questions() -> list[dict[str, Any]]:
        return list(pool.operate("pool_list_questions", agent_id=agent_id)["questions"])

    until(questions)
    return questions()[0]["question_id"], turn


def test_a_person_answers_in_a_terminal_and_the_turn_goes_on(pool: Pool, asked: Asked) -> None:
    question_id, turn = asked
    home = pool.hub.home
    shown = nexus(home, "questions", "--json")
    assert question_id in [row["question_id"] for row in json.loads(shown.stdout)["questions"]]
    done = nexus(home, "questions", "allow", question_id)
    assert done.returncode == 0, done.stderr
    assert turn.result(START_SECONDS)["result"]["content"].endswith("allowed")
    again = nexus(home, "questions", "refuse", question_id)
    assert again.returncode == 1
    assert "INVALID_TRANSITION" in again.stderr


def test_a_killed_worker_leaves_no_question_behind(pool: Pool, asked: Asked) -> None:
    question_id, turn = asked
    pool.worker().kill()
    assert turn.result(START_SECONDS)["error"]["data"]["code"] == "TURN_INTERRUPTED"
    assert pool.operate("pool_get_question", question_id=question_id)["status"] == "withdrawn"
