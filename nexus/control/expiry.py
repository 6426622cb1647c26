"""Questions that nobody answered in time become refusals, whether or not their asker still waits."""

from __future__ import annotations

from collections.abc import Sequence

from nexus.control.models import Question
from nexus.control.services import questions
from nexus.core.work import Work


class Expiry(Work[str, None]):
    """One lane: what is due is only recorded."""

    name = "questions"

    def lanes(self) -> Sequence[str]:
        return ("due",) if Question.objects.open().exists() else ()

    def claim(self, lane: str) -> str | None:
        return questions.expire_next()

    def act(self, item: str) -> None:
        """Nothing is left to do."""

    def settle(self, item: str, outcome: None) -> bool:
        return True


EXPIRY = Expiry()
