"""Questions to the operators: asked once, answered once, refused after their time. "Always" writes a rule of
permissions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from django.db import DatabaseError
from django.db.models import QuerySet

from coordination.ids import new_id
from coordination.log.selectors import interest_in
from coordination.models import Session
from coordination.services import workspaces
from coordination.services.agent_limits import exceeded
from coordination.services.retries import made_before
from inbox import services as mail
from nexus.control.config import ControlSettings
from nexus.control.events import QUOTED, emit_question_event
from nexus.control.models import (
    STREAM,
    TITLE_LENGTH,
    PoolAgent,
    Question,
    QuestionKind,
    QuestionStatus,
    RuleScope,
    Turn,
    TurnStatus,
)
from nexus.control.permissions import operator_rules, rules
from nexus.control.permissions.members import find
from nexus.control.permissions.rules import Action, Kind
from nexus.core.clock import now
from nexus.core.contributions import Notice, PendingNotice
from nexus.core.database.store import write
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.core.size_limits import within_limit
from nexus.core.waiting import READERS, WRITERS, Interest, in_thread, waiter

MOST_OPEN = 20  # open questions of one asker
LOOK_SECONDS = 5.0  # between two looks when no event came
PAUSE_SECONDS = 0.2  # at least, after the store could not be read
QUESTION_ENDS = frozenset(f"question.{status}" for status in ("answered", "expired", "withdrawn"))


class AnswerKind(StrEnum):
    """An operator's answer."""

    ALLOW = "allow"  # this once
    ALWAYS = "always"  # this, and the same from now on: it writes a rule
    REFUSE = "refuse"
    WORDS = "words"  # an answer in words, which gives no permission


STATUS = {
    AnswerKind.ALLOW: QuestionStatus.ALLOWED,
    AnswerKind.ALWAYS: QuestionStatus.ALLOWED,
    AnswerKind.REFUSE: QuestionStatus.REFUSED,
    AnswerKind.WORDS: QuestionStatus.ANSWERED,
}


@dataclass(frozen=True)
class Decision:
    """An operator's answer to a question; a refusal if nobody can be asked."""

    allowed: bool
    words: str | None = None  # an answer in words, or the reason of a refusal
    rule: int | None = None  # the number of the rule that decided


def ask(
    *,
    agent_id: str,
    kind: str,
    title: str,
    detail: str = "",
    subject: str = "",
    action: Action | None = None,
    client_id: str | None = None,
    turn: Turn | None = None,
) -> Question:
    """Ask the operators, unless a rule answers, and return the question.

    A question of a turn (`turn`, else the agent's running one) is withdrawn when the turn ends. The subject of a
    permission defaults to its title. A permission without `action` is one in the agent's own words: its subject. The
    rules were asked about other actions before. The same client_id is the same question, whatever its state. Raises
    CONTENT_TOO_LARGE; VALIDATION_ERROR for a client_id that named another question; QUOTA_EXCEEDED; and
    INVALID_TRANSITION for a turn that has ended.
    """
    within_limit(detail, "detail")
    within_limit(subject, "subject")
    moment = now()
    with write():
        pool_agent, turn = _asking_turn(agent_id) if turn is None else (turn.agent, _going_on(turn))
        question = Question(
            question_id=new_id("qst"),
            agent_id=agent_id,
            pool_agent=pool_agent,
            turn=turn,
            client_id=client_id,
            kind=kind,
            title=title,
            detail=detail,
            subject=subject or (title if kind == QuestionKind.PERMISSION else ""),
            asked_at=moment,
            expires_at=moment + timedelta(seconds=ControlSettings.current().pool_question_seconds),
        )
        same = ("kind", "title", "detail", "subject")
        known = made_before(question, maker=("agent_id", "pool_agent_id"), same=same)
        if known is not None:
            return known
        if kind == QuestionKind.PERMISSION:
            action = action or Action(Kind.OTHER, question.subject)
            question.action, question.patterns = action.kind, action.patterns()
            if action.kind is Kind.OTHER and _answered_by_rule(question, action, moment):
                return question
        others = Question.objects.of(agent_id, pool_agent)
        if (used := others.waiting(moment).count()) >= MOST_OPEN:
            raise exceeded(
                "open_questions",
                f"{used} questions of {agent_id!r} wait for a person already.",
                limit=MOST_OPEN,
                used=used,
                retry_after=None,
            )
        question.save(force_insert=True)
        emit_question_event("question.asked", agent_id, question, moment, detail=detail[:QUOTED])
    return question


def _answered_by_rule(question: Question, action: Action, moment: datetime) -> bool:
    """Store a question with its answer if a rule gives one."""
    ruling = operator_rules.decide(question.agent_id, question.pool_agent, action, rules.Verdict.ASKED)
    if ruling.rule is None or ruling.verdict is rules.Verdict.ASKED:
        return False
    question.rule, question.ended_at = ruling.rule.number, moment
    allowed = ruling.verdict is rules.Verdict.ALLOWED
    question.status = QuestionStatus.ALLOWED if allowed else QuestionStatus.REFUSED
    question.words = None if allowed else f"{ruling}."
    question.save(force_insert=True)
    by = f"rule {ruling.rule.number}"
    emit_question_event("question.answered", None, question, moment, operator=by, status=question.status)
    return True


def answer_question(
    *,
    question_id: str,
    verdict: AnswerKind,
    words: str | None = None,
    scope: str = RuleScope.AGENT,
    operator: str,
) -> Question:
    """Answer a question, and return it. ALWAYS writes rules for the asker, its runner or its project (`scope`).

    One conditional update: of two that answer at once, the second gets an error with the first's answer. Raises
    NOT_FOUND; VALIDATION_ERROR for a permission where words are asked for, and for "always" where no rule can hold;
    CONTENT_TOO_LARGE; and INVALID_TRANSITION for a question that was answered or withdrawn, or has expired.
    """
    within_limit(words, "words")
    moment = now()
    with write():
        question = get(question_id)
        if question.kind == QuestionKind.QUESTION and verdict in (AnswerKind.ALLOW, AnswerKind.ALWAYS):
            raise invalid("This is a question, which is answered in words; nothing is asked to be allowed.")
        if verdict is AnswerKind.ALWAYS and not question.patterns:
            raise invalid("No rule can hold for this: it is too long, or not one line. Allow it once.")
        changed = Question.objects.waiting(moment).filter(pk=question.pk).update(
            status=STATUS[verdict],
            always=verdict is AnswerKind.ALWAYS,
            words=words,
            answered_by=operator,
            ended_at=moment,
        )  # fmt: skip
        question.refresh_from_db()
        if not changed:
            raise _over(question)
        if question.always:
            operator_rules.allow_always(question, scope, operator, moment)
        payload = {"operator": operator, "status": question.status}
        if question.status == QuestionStatus.ALLOWED:
            payload["scope"] = "always" if question.always else "once"
        if words is not None:
            payload["words"] = words[:QUOTED]
        emit_question_event("question.answered", None, question, moment, **payload)
    return question


def answer_late(*, question_id: str, words: str | None, operator: str) -> Question:
    """Look after a question that expired: its asker gets the words, if there are any, as a message.

    Raises NOT_FOUND, CONTENT_TOO_LARGE, and INVALID_TRANSITION for a question that did not expire, that somebody looked
    after before, or whose asker has no project in which the message could arrive.
    """
    within_limit(words, "words")
    moment = now()
    with write():
        _end(Question.objects.due(moment).filter(pk=question_id), QuestionStatus.EXPIRED, moment)
        question = get(question_id)
        late = Question.objects.filter(pk=question_id, status=QuestionStatus.EXPIRED, answered_by=None)
        if not late.update(answered_by=operator, words=words):
            if question.status == QuestionStatus.ASKED:
                raise NexusError(Code.INVALID_TRANSITION, "This question still waits: answer it.")
            raise _over(question)
        question.refresh_from_db()
        if words is not None:
            _write_to_asker(question, words, moment)
        payload = {"operator": operator} | ({} if words is None else {"words": words[:QUOTED]})
        emit_question_event("question.answered_late", None, question, moment, **payload)
    return question


def _write_to_asker(question: Question, words: str, moment: datetime) -> None:
    """Send the answer as mail, in the project where the asker was last."""
    sessions = Session.objects.filter(agent_id=question.agent_id).order_by("-started_at", "-pk")
    workspace_id = sessions.values_list("workspace_id", flat=True).first()
    if workspace_id is None and question.pool_agent is not None:
        directory = workspaces.locate(question.pool_agent.cwd)
        workspaces.ensure(directory, moment)
        workspace_id = directory.workspace_id
    if workspace_id is None:
        raise NexusError(
            Code.INVALID_TRANSITION, f"{question.agent_id!r} has been in no project: it has no inbox there."
        )
    mail.notify(
        workspace_id=workspace_id,
        from_agent_id=OPERATOR_AGENT,
        recipient=question.agent_id,
        subject=f"A late answer: {question.title}",
        body=words,
        moment=moment,
    )


def hear(question: Question) -> Question:
    """Record that a call of its asker returns how the question ended, if it did; return it."""
    if question.ended_at is not None and question.heard_at is None:
        Question.objects.filter(pk=question.pk).update(heard_at=now())
    return question


def unheard_answers(agent_id: str) -> Iterator[Notice]:
    """Yield the answers to the agent's questions that came while no call of it waited."""
    for question in Question.objects.unheard(agent_id, now()):
        said = {"question": question.title, **({"words": question.words} if question.words else {})}
        yield Notice(question.pk, f"a person's answer to your question ({question.status}):", said, personal=True)


NEWS = PendingNotice(
    "answer",
    "Go on with it. ask_operator with the same client_id returns the whole answer.",
    frozenset({"question.answered"}),
    lambda event: [event.payload["agent_id"]],
    unheard_answers,
)


def expire(question_id: str) -> Question:
    """Return the question; record it as expired first if its time is over and nobody answered. Raises NOT_FOUND."""
    moment = now()
    with write():
        _end(Question.objects.due(moment).filter(pk=question_id), QuestionStatus.EXPIRED, moment)
        return get(question_id)


def expire_next() -> str | None:
    """Record one due question as expired; return its id, None if there is none."""
    moment = now()
    due = Question.objects.due(moment).order_by("expires_at").values_list("pk", flat=True).first()
    if due is not None:
        expire(due)
    return due


def withdraw(questions: QuerySet[Question], moment: datetime) -> None:
    """Withdraw those of the questions that are open. Call it inside a transaction."""
    _end(questions, QuestionStatus.WITHDRAWN, moment)


def withdraw_of(turn: Turn, moment: datetime) -> None:
    """Withdraw a turn's open questions. Call it inside a transaction."""
    if Question.objects.open().filter(turn=turn).exists():
        withdraw(turn.questions.all(), moment)


def withdraw_one(question_id: str) -> None:
    """Withdraw one question, because its asker stopped waiting."""
    with write():
        withdraw(Question.objects.filter(pk=question_id), now())


def get(question_id: str) -> Question:
    """Return a question. Raises NOT_FOUND."""
    question = Question.objects.with_parents().filter(pk=question_id).first()
    if question is None:
        raise not_found("question", question_id[:200])
    return question


def _end(questions: QuerySet[Question], status: QuestionStatus, moment: datetime) -> None:
    for question in questions.filter(status=QuestionStatus.ASKED):
        if Question.objects.open().filter(pk=question.pk).update(status=status, ended_at=moment):
            question.status, question.ended_at = status, moment
            emit_question_event(f"question.{status}", None, question, moment)


def _asking_turn(agent_id: str) -> tuple[PoolAgent | None, Turn | None]:
    """Return the pool agent of this name and its running turn; None for each that there is not."""
    pool_agent = find(agent_id)
    if pool_agent is None:
        return None, None
    return pool_agent, Turn.objects.filter(agent=pool_agent, status=TurnStatus.RUNNING).first()


def _going_on(turn: Turn) -> Turn:
    if not Turn.objects.open().filter(pk=turn.pk, epoch=turn.epoch).exists():
        raise NexusError(Code.INVALID_TRANSITION, "The turn that asks is over.", {"turn_id": turn.pk})
    return turn


def _over(question: Question) -> NexusError:
    """Return the error for a question that can no longer be answered."""
    status = QuestionStatus(question.status)
    if status is QuestionStatus.ASKED:
        status = QuestionStatus.EXPIRED  # although that is not recorded yet
    match status:
        case QuestionStatus.EXPIRED:
            after = f" {question.answered_by!r} has looked after it since." if question.answered_by else ""
            why = f"The time for an answer is over: it was refused.{after}"
        case QuestionStatus.WITHDRAWN:
            why = f"{question.agent_id!r} waits for no answer any more."
        case _:
            how = "always allowed" if question.always else status.value
            why = f"{question.answered_by!r} was first: it is {how}."
    return NexusError(Code.INVALID_TRANSITION, why, {"status": status.value})


def interest_in_end(question_id: str) -> Interest:
    """Return the interest in the event that ends this question."""
    return interest_in(STREAM, "question_id", question_id, lambda event: event.type in QUESTION_ENDS)


async def ask_and_wait(
    turn: Turn, kind: str, title: str, detail: str, *, subject: str, action: Action | None = None
) -> Decision:
    """Ask the operators and return their decision (see `runners.base.Ask`). A question that is too long to be shown
    whole is refused, because nobody may allow what they did not see. If the turn stops waiting, its question is
    withdrawn."""
    if len(title) > TITLE_LENGTH:
        title, detail = f"{title[: TITLE_LENGTH - 1]}…", f"{title}\n\n{detail}"
    put = partial(
        ask,
        agent_id=turn.agent.agent_id,
        kind=kind,
        title=title,
        detail=detail,
        subject=subject,
        action=action,
        turn=turn,
    )
    try:
        question = await in_thread(WRITERS, put)
    except NexusError as error:
        return Decision(False, str(error))
    try:
        question = await _ended(question)
    except BaseException:
        await in_thread(WRITERS, partial(withdraw_one, question.pk))
        raise
    return Decision(question.is_allowed, question.words or _why_not(question), question.rule)


async def _ended(question: Question) -> Question:
    async with waiter().park(interest_in_end(question.pk)) as parked:  # park first, so that no event is missed
        while question.status == QuestionStatus.ASKED:
            left = (question.expires_at - now()).total_seconds()
            with suppress(DatabaseError):  # the store is busy or away; operators can still answer
                if left <= 0:
                    question = await in_thread(WRITERS, partial(expire, question.pk))
                    continue
                question = await in_thread(READERS, partial(get, question.pk))
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
