"""What retention may delete of this app: agents that ended, with their turns and transcripts; of those that live, what
they know no more and the turns that it was said in; and answered questions."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Exists, OuterRef, QuerySet

from nexus.control.models import Entry, PoolAgent, PoolWorktree, Question, Turn, Wake, WorktreeState
from nexus.control.waking.kinds import MAIL
from nexus.core.contributions import RetentionLane

KEPT_TURNS = 20  # of each agent, the last that ended, whatever their age


def _ended(horizon: datetime) -> QuerySet[PoolAgent]:
    over = PoolAgent.objects.filter(ended_at__lt=horizon, children=None)  # children know theirs
    there = PoolWorktree.objects.exclude(state=WorktreeState.DISCARDED)
    return over.exclude(pk__in=there.values("agent")).order_by("ended_at")


def _questions(horizon: datetime) -> QuerySet[Question]:
    return Question.objects.filter(ended_at__lt=horizon, always=False).order_by("ended_at")  # "always" holds on


def _entries(horizon: datetime) -> QuerySet[Entry]:
    """What living agents know no more. What they know goes by compaction alone: their runners need it."""
    living = PoolAgent.objects.living().values("pk")
    return Entry.objects.filter(agent__in=living, compacted_at__lt=horizon).order_by("agent", "compacted_at")


def _turns(horizon: datetime) -> QuerySet[Turn]:
    """Turns of living agents of which no entry is left, but the last ones, and those that are still asked about."""
    newer = Turn.objects.filter(agent=OuterRef("agent"), ended_at__gt=OuterRef("ended_at"))
    kept = (
        Entry.objects.filter(turn=OuterRef("pk")),
        Question.objects.filter(turn=OuterRef("pk")),  # which goes in its own time, or holds on
        Wake.objects.filter(turn=OuterRef("pk")).exclude(kind=MAIL),  # it would wake the agent anew: nothing settles it
    )
    old = Turn.objects.filter(ended_at__lt=horizon, agent__ended_at=None)
    old = old.filter(Exists(newer[KEPT_TURNS - 1 :]), *(~Exists(rows) for rows in kept))
    return old.order_by("ended_at")


LANES = (
    RetentionLane("ended_questions", _questions),
    RetentionLane("ended_pool_agents", _ended),
    RetentionLane("compacted_pool_entries", _entries),  # before their turns: a turn has any number of them
    RetentionLane("ended_pool_turns", _turns),
)
