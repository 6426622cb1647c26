"""An agent's context: its messages, its size in tokens, and whether it is nearly full."""

from __future__ import annotations

from nexus.control.agents import transcript
from nexus.control.agents.rows import ContextRow, SessionRow, TokensRow
from nexus.control.models import Entry, PoolAgent, Role
from nexus.control.runners_file import REHEARSAL, Acp, Rehearsal, Runner, runners
from nexus.core.operations.errors import invalid

NEARLY = 0.8  # the used part of a context from which it should be compacted


def messages(agent: PoolAgent, offset: int, limit: int) -> tuple[int, list[Entry]]:
    """Return the number of messages in an agent's context, and a page of them; a page of long messages has fewer than
    `limit`."""
    entries = Entry.objects.in_context().filter(agent=agent)
    return entries.count(), transcript.page(entries[offset:], limit)[0]


def tokens(agent: PoolAgent) -> TokensRow:
    """Return the tokens of an agent's context."""
    taken, runner = transcript.tokens_by_role(agent), runner_of(agent)
    own, tools = fixed_tokens(runner, agent)
    system, said = own + taken.pop(Role.SYSTEM, 0), sum(taken.values())
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


def fixed_tokens(runner: Runner, agent: PoolAgent) -> tuple[int, int]:
    """Estimate the tokens of an agent's system prompt and of its tools' descriptions, as far as Nexus knows them: an
    agent process has others, which it does not tell."""
    if isinstance(runner, Rehearsal):
        return 0, 0
    if isinstance(runner, Acp):
        return agent.instruction_tokens, 0
    from nexus.control.runners.tools import catalog  # needs the extra `models`

    own = transcript.estimate(catalog.instructions(agent))
    return own + agent.instruction_tokens, catalog.tokens(agent.permissions)


def check_room(agent: PoolAgent) -> None:
    """Check that a new agent's context has room for a message. Raises VALIDATION_ERROR."""
    runner = runner_of(agent)
    taken = sum(fixed_tokens(runner, agent))
    if taken >= runner.available_tokens:
        raise invalid(
            f"No turn of it could begin: its instructions and tools take {taken} tokens, and runner {runner.name} has "
            f"{runner.available_tokens}. Raise context_tokens, or choose a preset with fewer tools.",
            field="model",
        )


def context(agent: PoolAgent) -> ContextRow:
    """Return the size of an agent's context, and how its last turn went."""
    entries = Entry.objects.in_context().filter(agent=agent)
    row: ContextRow = {
        "message_count": entries.count(),
        "system_prompt": fixed_tokens(runner_of(agent), agent)[0] > 0 or entries.filter(role=Role.SYSTEM).exists(),
        "halted_at_iteration_limit": agent.halted,
        "last_iteration_count": agent.last_iterations,
        "max_tool_iterations": runner_of(agent).max_iterations,
    }
    if agent.session is not None:
        row["session"] = session(agent)
    return row


def session(agent: PoolAgent) -> SessionRow:
    """Return what an agent's process told last of its session, and what an operator chose for it."""
    told: SessionRow = {**(agent.session or {}), "chosen": agent.options}  # type: ignore[typeddict-item]
    return told


def is_nearly_full(agent: PoolAgent) -> bool:
    """Return whether an agent's context should be compacted."""
    return nearly_fill(tokens(agent))


def nearly_fill(row: TokensRow) -> bool:
    """Return whether these tokens nearly fill a context."""
    return row["total"] >= NEARLY * row["available"]


def runner_of(agent: PoolAgent) -> Runner:
    """Return the runner of an agent's turns; the figures of the default one if its runner is no longer configured."""
    known = runners()
    return known.by_name.get(agent.runner) or known.by_name.get(known.default, REHEARSAL)
