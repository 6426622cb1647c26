"""A pool at work, without a worker: the tests take its turns themselves."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from nexus.control.agents import transcript, turns
from nexus.control.models import Entry, PoolAgent, Role, Turn, TurnStatus
from nexus.control.toolset import CONTROL
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.replies import ENVELOPE


def pool(operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Call an operation of the pool as an operator."""
    return dict(dispatch.perform(CONTROL, Caller(transport="test", operator="olga"), operation, arguments).result())


def refused(operation: str, /, **arguments: Any) -> dict[str, Any]:
    """The error that an operation of the pool answers with."""
    outcome = dispatch.perform(CONTROL, Caller(transport="test", operator="olga"), operation, arguments)
    error: dict[str, Any] = ENVELOPE.body(outcome)["error"]
    return error


def send(agent_id: str, content: str = "work", **arguments: Any) -> str:
    """Queue a turn; its request_id."""
    return str(pool("pool_send", agent_id=agent_id, content=content, timeout_seconds=0, **arguments)["request_id"])


def take() -> Turn:
    """Take the turn that waits longest, as a worker does."""
    at_one = Turn.objects.filter(status=TurnStatus.RUNNING).values("agent")
    waiting = Turn.objects.filter(status=TurnStatus.QUEUED).exclude(agent__in=at_one).order_by("turn_id")
    turn = turns.claim(waiting[0].pk)
    assert turn is not None
    return turn


def say(turn: Turn, role: Role, content: str, **more: Any) -> Entry:
    """Append to a transcript, as a runner does."""
    with write():
        turn.agent.refresh_from_db()
        return transcript.append(turn.agent, turn, role, content, moment=now(), announce=True, **more)


def settle(turn: Turn, status: TurnStatus = TurnStatus.DONE, **how: Any) -> None:
    """End a turn, as a worker does."""
    turns.settle_turn(turn, turns.Ended(status, **how))


def command(name: str, *words: str) -> str:
    """What a command prints; it must end well."""
    out = io.StringIO()
    with pytest.raises(SystemExit) as left:
        call_command(name, *words, stdout=out)
    assert not left.value.code
    return out.getvalue()


def fill(agent: PoolAgent, entries: int) -> None:
    """Give an agent so many entries more."""
    first, moment = agent.entries.count(), now()
    Entry.objects.bulk_create(
        Entry(agent=agent, position=first + n, role=Role.ASSISTANT, content=f"entry{first + n} said", tokens=3,
              created_at=moment)
        for n in range(entries)
    )  # fmt: skip
    PoolAgent.objects.filter(pk=agent.pk).update(entries_made=first + entries, entries_known=first + entries)


@pytest.fixture
def at_hand(db: None, configure: Callable[..., None], tmp_path: Path) -> Path:
    """A hub with a pool, and a directory for its agents."""
    configure(control=True, home=tmp_path / "home")
    (tmp_path / "home").mkdir()
    project = tmp_path / "parser"
    (project / "src").mkdir(parents=True)
    return project


@pytest.fixture
def lead(at_hand: Path) -> PoolAgent:
    """An agent that may create others."""
    pool("pool_create_agent", agent_id="lead", preset="trusted", cwd=str(at_hand))
    return PoolAgent.objects.get(agent_id="lead")


@pytest.fixture
def writer(lead: PoolAgent, at_hand: Path) -> PoolAgent:
    """A child of lead's, which writes in src."""
    pool(
        "pool_create_agent", agent_id="writer", preset="sandboxed", parent_agent_id="lead",
        allowed_write_paths=["src"], disable_tools=["glob"],
    )  # fmt: skip
    return PoolAgent.objects.get(agent_id="writer")
