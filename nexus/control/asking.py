"""Questions from a running turn to the operators. The turn waits for the answer without holding a thread."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from django.db import DatabaseError

from coordination.log.selectors import interest_in
from nexus.control.models import STREAM, TITLE_LENGTH, Question, QuestionStatus, Turn
from nexus.control.runners.base import Decision
from nexus.control.services import questions
from nexus.core.clock import now
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import READERS, WRITERS, Interest, in_thread, waiter

LOOK_SECONDS = 5.0  # between two looks when no event came
PAUSE_SECONDS = 0.2  # at least, after the store could not be read
ENDS = frozenset(f"question.{status}" for status in ("answered", "expired", "withdrawn"))


def end_of(question_id: str) -> Interest:
    """Return the interest in the event that ends this question."""
    return interest_in(STREAM, "question_id", question_id, lambda event: event.type in ENDS)


async def ask(turn: Turn, kind: str, title: str, detail: str, *, subject: str) -> Decision:
    """Ask the operators and return their decision (see `runners.base.Ask`). A question that is too long to be shown
    whole is refused, because nobody may allow what they did not see. If the turn stops waiting, its question is
    withdrawn."""
    if len(title) > TITLE_LENGTH:
        title, detail = f"{title[: TITLE_LENGTH - 1]}…", f"{title}\n\n{detail}"
    put = partial(
        questions.ask, agent_id=turn.agent.agent_id, kind=kind, title=title, detail=detail, subject=subject, turn=turn
    )
    try:
        question = await in_thread(WRITERS, put)
    except NexusError as error:
        return Decision(False, str(error))
    try:
        question = await _ended(question)
    except BaseException:
        await in_thread(WRITERS, partial(questions.withdraw_one, question.pk))
        raise
    return Decision(question.is_allowed, question.words or _why_not(question))


async def _ended(question: Question) -> Question:
    async with waiter().park(end_of(question.pk)) as parked:  # park first, so that no event is missed
        while question.status == QuestionStatus.ASKED:
            left = (question.expires_at - now()).total_seconds()
            with suppress(DatabaseError):  # the store is busy or away; operators can still answer
                if left <= 0:
                    question = await in_thread(WRITERS, partial(questions.expire, question.pk))
                    continue
                question = await in_thread(READERS, partial(questions.get, question.pk))
            if question.status == QuestionStatus.ASKED:
                await parked.wait(min(max(left, PAUSE_SECONDS), LOOK_SECONDS))
    return question


def _why_not(question: Question) -> str | None:
    match question.status:
        case QuestionStatus.REFUSED:
            return "An operator refused."
        case QuestionStatus.EXPIRED:
            return "Nobody answered in time, which is a refusal."
        case QuestionStatus.WITHDRAWN:
            return "The question was withdrawn."
    return None
