"""The reads of this app."""

from __future__ import annotations

from collections import Counter

from django.db.models import F

from nexus.control.models import Entry, PoolAgent, Question, Role, Turn
from nexus.control.rows import ContextRow, Living, PoolAgentRow, TokensRow, agent_row
from nexus.control.rows import context_row as row_of_context
from nexus.control.runners.configuration import Model, Runner, runners
from nexus.control.services import transcript
from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot

NEARLY = 0.8  # the used part of a context from which it should be compacted


_turn = Select(
    lambda: (
        Turn.objects.select_related("agent")
        .filter(agent__agent_id=Slot("agent_id"), request_id=Slot("request_id"))
        .order_by("-turn_id")
    )
)
_living = Select(lambda: PoolAgent.objects.living().order_by("pk").values_list(*Living._fields))


def agents() -> list[PoolAgentRow]:
    """Return every living agent of the pool, oldest first."""
    living = [Living._make(row) for row in _living()]
    children = Counter(agent.parent_id for agent in living)
    return [agent_row(agent, children=children[agent.pk]) for agent in living]


def turn(agent_id: str, request_id: str) -> Turn | None:
    """Return a turn of the latest agent of this name; None if there is none."""
    return _turn.first(agent_id=agent_id, request_id=request_id)


def messages(agent: PoolAgent, offset: int, limit: int) -> tuple[int, list[Entry]]:
    """Return the number of messages in an agent's context, and a page of them; a page of long messages has fewer than
    `limit`."""
    entries = Entry.objects.in_context().filter(agent=agent)
    return entries.count(), transcript.page(entries[offset:], limit)[0]


def tokens(agent: PoolAgent) -> TokensRow:
    """Return the tokens of an agent's context."""
    taken, runner = transcript.tokens_by_role(agent), runner_of(agent)
    system, said = taken.pop(Role.SYSTEM, 0), sum(taken.values())
    tools = _tool_tokens(runner, agent)
    total = system + tools + said
    return {
        "system": system,
        "tools": tools,
        "messages": said,
        "total": total,
        "budget": runner.context_tokens,
        "available": runner.available_tokens,
        "remaining": max(runner.available_tokens - total, 0),
    }


def _tool_tokens(runner: Runner, agent: PoolAgent) -> int:
    """Estimate the tokens that the descriptions of an agent's tools take in every request."""
    if not isinstance(runner, Model):
        return 0
    from nexus.control.tools import catalog  # needs the extra `models`

    return catalog.tokens(agent.permissions)


def context(agent: PoolAgent) -> ContextRow:
    """Return the size of an agent's context, and how its last turn went."""
    entries = Entry.objects.in_context().filter(agent=agent)
    return row_of_context(
        agent,
        messages=entries.count(),
        system_prompt=entries.filter(role=Role.SYSTEM).exists(),
        max_iterations=runner_of(agent).max_iterations,
    )


def is_nearly_full(agent: PoolAgent) -> bool:
    """Return whether an agent's context should be compacted."""
    return nearly_fill(tokens(agent))


def nearly_fill(row: TokensRow) -> bool:
    """Return whether these tokens nearly fill a context."""
    return row["total"] >= NEARLY * row["available"]


def runner_of(agent: PoolAgent) -> Runner:
    """Return the runner of an agent's turns; the figures of the default one if its runner is no longer configured."""
    known = runners()
    return known.by_name.get(agent.runner) or known.named(None)


def questions(which: str, agent_id: str | None, limit: int) -> list[Question]:
    """Return questions to the operators: `asked`, oldest first; `ended`, or allowed `always`, newest first."""
    rows = Question.objects.all() if agent_id is None else Question.objects.filter(agent_id=agent_id)
    match which:
        case "asked":
            return list(rows.waiting(now()).order_by("question_id")[:limit])
        case "always":
            return list(rows.filter(always=True, pool_agent__ended_at=None).order_by("-question_id")[:limit])
    return list(rows.exclude(ended_at=None).order_by("-ended_at", "-question_id")[:limit])


def current_request(agent_id: str) -> str | None:
    """Return the request_id of an agent's running turn, else of the next one; None if there is none."""
    turns = Turn.objects.open().filter(agent__agent_id=agent_id, agent__ended_at=None)
    at_first = F("started_at").asc(nulls_last=True)
    return turns.order_by(at_first, "turn_id").values_list("request_id", flat=True).first()
