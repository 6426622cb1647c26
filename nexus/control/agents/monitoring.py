"""Reads for the operators' pages of the pool; bounded, whatever the number of agents and the size of transcripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Left, Length

from inbox.lifecycle import MAX_ATTEMPTS
from inbox.models import Delivery, DeliveryStatus
from nexus.control.agents.transcript import tool_calls
from nexus.control.agents.wake_kinds import MAIL
from nexus.control.models import Entry, PoolAgent, Question, Role, Turn, TurnStatus, Wake
from nexus.control.permissions import protected_paths, rules
from nexus.core.clock import now

GLIMPSE = 160  # characters of a turn's message
EXCERPT = 4_000  # characters of an entry that a page shows, unless it shows one in full
CALLED = 50  # entries before a page that are searched for the calls of its results


@dataclass(frozen=True)
class Counts:
    """The number of agents and of open turns."""

    agents: int
    held: int  # of them, not woken because of a limit
    running: int  # turns
    waiting: int


@dataclass(frozen=True)
class Member:
    """A row in a list of pool agents."""

    agent: PoolAgent
    turn: Turn | None  # the running one, with `glimpse`
    waiting: int  # turns
    asks: int  # open questions
    needs: int  # runs that failed, and need a person
    context: int  # tokens that its context takes
    spent: int  # tokens of all its turns

    @property
    def permissions(self) -> list[str]:
        """The agent's permissions, in words."""
        return rules.describe_permissions(self.agent.permissions, protected_paths.home())


@dataclass(frozen=True)
class TranscriptPage:
    """A part of a transcript, oldest first, and whether there are entries before and after it."""

    entries: list[Entry]
    earlier: bool = False
    later: bool = False


@dataclass(frozen=True)
class Spent:
    """The number and the tokens of an agent's turns."""

    turns: int
    input_tokens: int
    output_tokens: int


def counts() -> Counts:
    """Count the living agents and the running and waiting turns."""
    turns = dict(Turn.objects.open().order_by().values_list("status").annotate(Count("pk")))
    agents = PoolAgent.objects.living().aggregate(agents=Count("pk"), held=Count("held_why"))
    return Counts(**agents, running=turns.get(TurnStatus.RUNNING, 0), waiting=turns.get(TurnStatus.QUEUED, 0))


def matching(rows: QuerySet[PoolAgent], words: str) -> QuerySet[PoolAgent]:
    """Keep the agents whose name, runner or directory contains the words; all if there are no words."""
    if not words:
        return rows
    return rows.filter(Q(agent_id__icontains=words) | Q(runner__icontains=words) | Q(cwd__icontains=words))


def members(agents: Sequence[PoolAgent]) -> list[Member]:
    """Return what a list shows of agents, in their order."""
    keys = [agent.pk for agent in agents]
    in_context = (
        Entry.objects.in_context().order_by().filter(agent__in=keys).values_list("agent").annotate(Sum("tokens"))
    )
    spent = Turn.objects.ended().order_by().filter(agent__in=keys).values_list("agent")
    tokens, used = dict(in_context), dict(spent.annotate(tokens=Sum(F("input_tokens") + F("output_tokens"))))
    waiting = dict(Turn.objects.queued().filter(agent__in=keys).order_by().values_list("agent").annotate(Count("pk")))
    asked = Question.objects.waiting(now()).order_by().filter(pool_agent__in=keys).values_list("pool_agent")
    asks = dict(asked.annotate(Count("pk")))
    failed = Turn.objects.needing_person().ended().order_by().filter(agent__in=keys).values_list("agent")
    needs = dict(failed.annotate(Count("pk")))
    running = {turn.agent_id: turn for turn in glimpses(Turn.objects.filter(agent__in=keys, status=TurnStatus.RUNNING))}
    return [
        Member(
            agent,
            running.get(agent.pk),
            waiting.get(agent.pk, 0),
            asks.get(agent.pk, 0),
            needs.get(agent.pk, 0),
            tokens.get(agent.pk, 0),
            used.get(agent.pk, 0),
        )
        for agent in agents
    ]


def glimpses(turns: QuerySet[Turn]) -> QuerySet[Turn]:
    """Annotate turns with `glimpse`, the beginning of their message, and defer the long texts."""
    return turns.defer("content", "answer").annotate(glimpse=Left("content", GLIMPSE))


def spent(agent: PoolAgent) -> Spent:
    """Sum up an agent's ended turns."""
    found = (
        Turn.objects.ended()
        .filter(agent=agent)
        .aggregate(
            turns=Count("*"), input_tokens=Sum("input_tokens", default=0), output_tokens=Sum("output_tokens", default=0)
        )
    )
    return Spent(**found)


def questions_of(agent: PoolAgent, limit: int) -> list[Question]:
    """Return an agent's waiting questions, the next to expire first."""
    return list(Question.objects.waiting(now()).filter(pool_agent=agent).order_by("expires_at")[:limit])


def questions_below(agent: PoolAgent, limit: int) -> list[Question]:
    """Return the waiting questions of the agents below an agent, the next to expire first."""
    levels = ("__".join(("pool_agent", *["parent"] * level)) for level in range(1, rules.DEEPEST + 1))
    below = reduce(or_, (Q(**{level: agent}) for level in levels))
    return list(Question.objects.with_parents().waiting(now()).filter(below).order_by("expires_at")[:limit])


def dead_letters(agent: PoolAgent) -> int:
    """Count the messages that woke an agent the maximum number of times, without a turn that ended well; they wake it
    no more."""
    return Delivery.objects.of(agent.agent_id).filter(status=DeliveryStatus.PARKED).count()


def given_up(agent: PoolAgent, limit: int) -> list[tuple[str, str]]:
    """Return the other items that wake an agent no more after so many failed turns: kind and id of each."""
    well = Count("turn", filter=Q(turn__status=TurnStatus.DONE))
    tried = Wake.objects.filter(turn__agent=agent).exclude(kind=MAIL).values_list("kind", "item")
    never = tried.annotate(turns=Count("turn"), well=well).filter(turns__gte=MAX_ATTEMPTS, well=0)
    return list(never.order_by("kind", "item").values_list("kind", "item")[:limit])


def is_running(agent: PoolAgent) -> bool:
    """Return whether an agent has a running turn."""
    return Turn.objects.filter(agent=agent, status=TurnStatus.RUNNING).exists()


def running(limit: int) -> list[tuple[str, str, str]]:
    """Return the running turns, one for each agent: its name, its pool_agent_id, and the beginning of the message."""
    turns: Any = Turn.objects.open().filter(status=TurnStatus.RUNNING).order_by()
    return list(turns.values_list("agent__agent_id", "agent_id", Left("content", GLIMPSE))[:limit])


def part(agent: PoolAgent, *, before: int | None, limit: int) -> TranscriptPage:
    """Return the newest entries of a transcript, or those before a position."""
    entries = _excerpts(agent)
    if before is not None:
        entries = entries.filter(position__lt=before)
    rows = list(entries.order_by("-position")[: limit + 1])
    later = before is not None and Entry.objects.filter(agent=agent, position__gte=before).exists()
    return TranscriptPage(rows[limit - 1 :: -1] if len(rows) > limit else rows[::-1], len(rows) > limit, later)


def newer(agent: PoolAgent, *, after: int, limit: int) -> list[Entry]:
    """Return the entries after the first `after` of a transcript, oldest first."""
    return list(_excerpts(agent).filter(position__gte=after).order_by("position")[:limit])


def steps(turn: Turn, limit: int) -> list[Entry]:
    """Return the entries of one turn, oldest first, without the message that it began with."""
    return list(_excerpts(turn.agent).filter(turn=turn).exclude(role=Role.USER).order_by("position")[:limit])


def _excerpts(agent: PoolAgent) -> QuerySet[Entry]:
    rows = Entry.objects.filter(agent=agent).select_related("turn").defer("content", "turn__content", "turn__answer")
    return rows.annotate(excerpt=Left("content", EXCERPT), length=Length("content"))


def calls(agent: PoolAgent, shown: Sequence[Entry]) -> dict[str, str]:
    """Return the names of the tool calls that results among these entries may answer, by call id."""
    if not any(entry.role == Role.TOOL for entry in shown):
        return {}
    answers = Entry.objects.filter(agent=agent, role=Role.ASSISTANT, position__lte=shown[-1].position)
    metas = answers.filter(position__gte=shown[0].position - CALLED).values_list("meta", flat=True)
    return {call["id"]: call["name"] for meta in metas for call in tool_calls(meta)}
