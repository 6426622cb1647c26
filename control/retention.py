"""What retention may delete of this app: agents that ended, with their turns and transcripts, and answered
questions."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from control.models import PoolAgent, PoolWorktree, Question, WorktreeState
from core.contributions import RetentionLane


def _ended(horizon: datetime) -> QuerySet[PoolAgent]:
    over = PoolAgent.objects.filter(ended_at__lt=horizon, children=None)  # children know theirs
    there = PoolWorktree.objects.exclude(state=WorktreeState.DISCARDED)
    return over.exclude(pk__in=there.values("agent")).order_by("ended_at")


def _questions(horizon: datetime) -> QuerySet[Question]:
    return Question.objects.filter(ended_at__lt=horizon, always=False).order_by("ended_at")  # "always" holds on


LANES = (RetentionLane("ended_questions", _questions), RetentionLane("ended_pool_agents", _ended))
