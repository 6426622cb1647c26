"""Runs: the turns of the pool's agents as operators see them, and what to do about those that failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.models import Event
from inbox.monitoring import Picture
from nexus.control.agents import turns
from nexus.control.attention import KINDS
from nexus.control.models import Cause, PoolAgent, Role, Turn, TurnStatus
from nexus.control.runners import sandbox
from nexus.control.runners_file import FILE
from nexus.core.clock import now
from tests.conftest import at_once
from tests.control.playing import at_hand, command, lead, pool, refused, say, send, settle, take, writer
from tests.control.pool import HERE

__all__ = ["at_hand", "lead", "writer"]


def failed(agent_id: str = "lead", content: str = "work", status: TurnStatus = TurnStatus.FAILED, **how: Any) -> str:
    """A run that failed; its run_id."""
    send(agent_id, content)
    turn = take()
    settle(turn, status, **{"why": "the provider is away", **how})
    return turn.pk


def needing() -> list[str]:
    """The runs that need a person, as both the operation and Home tell."""
    kind = next(kind for kind in KINDS if kind.name == "runs")
    found = kind.find(Picture(now()), 10)
    listed = [run["run_id"] for run in pool("pool_list_runs", which="needing_person")["runs"]]
    assert sorted(need.subject for need in found.needs) == sorted(listed) and found.count == len(listed)
    return listed


def outcome(run_id: str) -> str:
    return str(pool("pool_get_run", run_id=run_id)["outcome"])


def test_it_lists_runs_newest_first_by_agent_and_outcome(lead: PoolAgent, writer: PoolAgent) -> None:
    first = failed("lead", "x" * 1_000)
    second = failed("writer", cause=Cause.REFUSED)
    third = failed("lead", status=TurnStatus.DONE, why=None, answer="Here it is.")
    rows = pool("pool_list_runs")["runs"]
    assert [row["run_id"] for row in rows] == [third, second, first]
    assert [row["outcome"] for row in rows] == ["done", "refused", "failed"]
    assert rows[2]["prompt"] == "x" * 160
    for given, expected in (
        ({"agent_id": "lead"}, [third, first]),
        ({"outcome": "failed"}, [first]),
        ({"outcome": "refused"}, [second]),
        ({"before": third, "limit": 1}, [second]),
    ):
        assert [row["run_id"] for row in pool("pool_list_runs", **given)["runs"]] == expected


def test_it_shows_a_run_whole(lead: PoolAgent) -> None:
    send("lead", "Write the parser.")
    turn = take()
    say(turn, Role.ASSISTANT, "", meta={"tool_calls": [{"id": "1", "name": "grep"}]})
    say(turn, Role.TOOL, "none", tool_call_id="1")
    run = pool("pool_get_run", run_id=turn.pk)
    assert run["outcome"] == "running" and not run["may_have_changed_files"] and run["ended_at"] is None
    say(turn, Role.ASSISTANT, "I write.", meta={"tool_calls": [{"id": "2", "name": "Edit", "kind": "edit"}]})
    settle(turn, TurnStatus.FAILED, why="it crashed")
    run = pool("pool_get_run", run_id=turn.pk)
    assert (run["prompt"], run["why"], run["may_have_changed_files"]) == ("Write the parser.", "it crashed", True)
    assert [(step["role"], step["content"], step["calls"]) for step in run["steps"]] == [
        ("assistant", "", ["grep"]),
        ("tool", "none", []),
        ("assistant", "I write.", ["Edit"]),
    ]
    assert (run["input_tokens"], run["output_tokens"]) == (None, None), "unknown is not 0"
    assert refused("pool_get_run", run_id="turn_none")["code"] == "NOT_FOUND"


def test_failed_and_lost_runs_need_a_person_until_they_are_retried_or_dismissed(lead: PoolAgent) -> None:
    cancelled = failed(status=TurnStatus.CANCELLED)
    first, second = failed(), failed(cause=Cause.REFUSED)
    send("lead")
    third = take().pk
    turns.interrupt("the server ended", HERE)
    assert needing() == [third, second, first] and outcome(third) == "lost" and outcome(cancelled) == "cancelled"
    assert not pool("pool_dismiss_run", run_id=second)["needs_person"]
    again = pool("pool_retry_run", run_id=third)
    assert needing() == [first]
    assert (again["retry_of"], again["prompt"], again["source"]) == (third, "work", "retry")
    assert pool("pool_get_run", run_id=third)["retried_by"] == [again["run_id"]]
    settle(take(), TurnStatus.FAILED, why="again")
    assert needing() == [again["run_id"], first]
    pool("pool_destroy_agent", agent_id="lead")
    assert needing() == [], "an agent that ended takes no turn"
    told = Event.objects.filter(type__in=("turn.retried", "turn.dismissed")).order_by("event_id")
    assert [(event.type, event.actor_agent_id, event.payload["turn_id"]) for event in told] == [
        ("turn.dismissed", "olga", second),
        ("turn.retried", "olga", third),
    ]


def test_a_run_is_retried_with_another_prompt(lead: PoolAgent) -> None:
    run_id = failed(content="Use main.")
    again = pool("pool_retry_run", run_id=run_id, content="Use the other branch.")
    assert again["prompt"] == "Use the other branch."
    assert take().content == "Use the other branch."


def test_a_retry_that_is_open_is_not_made_twice(lead: PoolAgent) -> None:
    run_id = failed()
    again = pool("pool_retry_run", run_id=run_id)
    assert pool("pool_retry_run", run_id=run_id)["run_id"] == again["run_id"]
    assert "another message" in refused("pool_retry_run", run_id=run_id, content="else")["message"]
    settle(take(), TurnStatus.FAILED, why="again")
    assert pool("pool_retry_run", run_id=run_id)["run_id"] != again["run_id"]


def test_two_people_who_retry_at_once_make_one_run(committed: None, lead: PoolAgent) -> None:
    run_id = failed()
    made = at_once([lambda: pool("pool_retry_run", run_id=run_id)["run_id"] for _ in range(4)])
    assert len(set(made)) == 1 and Turn.objects.count() == 2


@pytest.mark.parametrize("status", ["queued", "running", "done", "ended"])
def test_what_cannot_be_retried_is_told(lead: PoolAgent, status: str) -> None:
    if status in ("done", "ended"):
        run_id = failed(status=TurnStatus.DONE if status == "done" else TurnStatus.FAILED)
        if status == "ended":
            pool("pool_destroy_agent", agent_id="lead")
    else:
        send("lead")
        run_id = Turn.objects.get().pk if status == "queued" else take().pk
    assert refused("pool_retry_run", run_id=run_id)["code"] == "INVALID_TRANSITION"
    if status != "ended":
        assert refused("pool_dismiss_run", run_id=run_id)["code"] == "INVALID_TRANSITION"


def test_a_person_can_take_the_agents_session_over(
    lead: PoolAgent, at_hand: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "the test has none"))
    (at_hand.parent / "home" / FILE).write_text('[runners.codex]\nkind = "acp"\npreset = "codex"\n')
    PoolAgent.objects.filter(pk=lead.pk).update(runner="codex")
    run_id = failed()
    assert pool("pool_get_run", run_id=run_id)["take_over"] is None, "it has no session"
    send("lead")
    turn = take()
    say(turn, Role.ASSISTANT, "Hello", meta={"acp_session": "abc 1"})
    settle(turn, TurnStatus.FAILED, why="it crashed")
    command = pool("pool_get_run", run_id=turn.pk)["take_over"]
    assert command.startswith(f"cd {at_hand} && HOME=") and command.endswith(" codex resume 'abc 1'")


def test_the_command_lists_shows_retries_and_dismisses(
    committed: None, project: str, configure: Callable[..., None]
) -> None:
    configure(control=True)
    pool("pool_create_agent", agent_id="lead", preset="trusted", cwd=project)

    first, second = failed(content="Write it."), failed()
    assert "failed, needs you" in command("runs") and "Write it." in command(
        "runs", "list", "--which", "needing_person"
    )
    assert "the provider is away" in command("runs", "show", first)
    command("runs", "retry", first, "--content", "Write less.")
    command("runs", "dismiss", second)
    assert needing() == [] and take().content == "Write less."
