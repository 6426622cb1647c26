"""Expiry of questions: an unanswered question becomes a refusal, whether or not the agent that asked still waits."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.control.models import Question
from nexus.control.services import questions
from nexus.core.work import Work


class Expiry(Work[str, None]):
    """Background work that records due questions as expired, one at a time. `claim` does all of it."""

    name = "questions"

    def lanes(self) -> Sequence[str]:
        return ("due",) if Question.objects.open().exists() else ()

    def claim(self, lane: str) -> str | None:
        return questions.expire_next()

    def act(self, item: str) -> None:
        """Do nothing: `claim` has recorded the expiry."""

    def settle(self, item: str, outcome: None) -> bool:
        return True


EXPIRY = Expiry()
