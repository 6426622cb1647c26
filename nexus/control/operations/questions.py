"""Operations on questions: agents ask, operators answer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from coordination.errors import CoordinationCode
from coordination.parameters import ClientId, SessionId, SessionSecret, in_session
from coordination.selectors import require_agent
from nexus.control import selectors
from nexus.control.agents import questions
from nexus.control.agents.questions import AnswerKind, interest_in_end
from nexus.control.agents.rows import QuestionRow, question_row
from nexus.control.models import QuestionStatus
from nexus.control.operations.agents import MOST_SECONDS
from nexus.control.toolset import QUESTIONS, operation
from nexus.core.operations.caller import Caller, operator_behind
from nexus.core.operations.errors import Code
from nexus.core.operations.parameters import Id, Limit, Params
from nexus.core.operations.registry import OPERATORS_ONLY, Wait
from nexus.core.operations.replies import Data
from nexus.core.waiting import Interest

SECONDS = 300  # that a call waits for the answer
LISTED, MOST_LISTED = 50, 500
OF_ONE = (Code.VALIDATION_ERROR, Code.NOT_FOUND, Code.INVALID_TRANSITION)


class AskOperator(Params):
    agent_id: Annotated[Id, Field(description="You.")]
    title: Annotated[Id, Field(description="What you ask, in a line.")]
    detail: Annotated[str, Field(description="What a person must know to answer.")] = ""
    kind: Annotated[
        Literal["question", "permission"], Field(description="question: answered in words; permission: may you?")
    ] = "question"
    subject: Annotated[str, Field(description="What rules know it by, letter by letter; else the title.")] = ""
    client_id: ClientId = None
    timeout_seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, description="0: ask, and do not wait.")] = SECONDS
    session_id: SessionId = None
    session_secret: SessionSecret = None


class OpenQuestion(AskOperator):
    """State of a waiting call: the question that it asked."""

    question_id: str
    expires_at: datetime


def _resumed(p: AskOperator, data: Data) -> AskOperator:
    known = {"question_id": data["question_id"], "expires_at": datetime.fromisoformat(data["expires_at"])}
    return OpenQuestion.model_construct(**{**p.__dict__, **known})


def _look(p: AskOperator, caller: Caller) -> QuestionRow:
    assert isinstance(p, OpenQuestion)
    return question_row(questions.get(p.question_id))


def _ends(p: AskOperator) -> Interest:
    assert isinstance(p, OpenQuestion)
    return interest_in_end(p.question_id)


def _expires_at(p: AskOperator) -> datetime:
    assert isinstance(p, OpenQuestion)
    return p.expires_at


def _finish(p: AskOperator, caller: Caller, performed: Data) -> QuestionRow:
    return question_row(questions.hear(questions.expire(performed["question_id"])))


@operation(
    AskOperator,
    *OF_ONE,
    Code.NOT_OWNER,
    Code.CONTENT_TOO_LARGE,
    CoordinationCode.QUOTA_EXCEEDED,
    acts_as="agent_id",
    requires=(in_session("session_id"),),
    wait=Wait[AskOperator](
        timeout=lambda p: p.timeout_seconds,
        resume=_resumed,
        interested=_ends,
        look=_look,
        done=lambda data: data["status"] != QuestionStatus.ASKED,
        finish=_finish,
        expired=lambda p, data: data,
        next_change=_expires_at,
        capped=False,
    ),
    also=(QUESTIONS,),
)
def ask_operator(p: AskOperator, caller: Caller) -> QuestionRow:
    """Ask a person and wait for the answer: words, or a permission. If the time is over first, status is still
    asked: call again with the same client_id to keep waiting. No answer is a refusal."""
    require_agent(p.agent_id)
    question = questions.ask(
        agent_id=p.agent_id,
        kind=p.kind,
        title=p.title,
        detail=p.detail,
        subject=p.subject,
        client_id=p.client_id,
    )
    return question_row(questions.hear(question))


class OfQuestion(Params):
    question_id: Id


class Always(OfQuestion):
    scope: Annotated[
        Literal["agent", "runner", "project"],
        Field(description="For whom the rule holds: the agent, agents of its runner, or of its project."),
    ] = "agent"


class WithWords(OfQuestion):
    words: Annotated[str, Field(min_length=1, description="The answer, as the agent gets it.")]


@operation(OfQuestion, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def pool_allow(p: OfQuestion, caller: Caller) -> QuestionRow:
    """Allow what an agent asks for, this once."""
    return _answered(p, caller, AnswerKind.ALLOW)


@operation(Always, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def pool_allow_always(p: Always, caller: Caller) -> QuestionRow:
    """Allow what an agent asks for, and write a rule that allows the same from now on."""
    return _answered(p, caller, AnswerKind.ALWAYS, scope=p.scope)


@operation(OfQuestion, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def pool_refuse(p: OfQuestion, caller: Caller) -> QuestionRow:
    """Refuse what an agent asks for."""
    return _answered(p, caller, AnswerKind.REFUSE)


@operation(WithWords, *OF_ONE, Code.CONTENT_TOO_LARGE, requires=(OPERATORS_ONLY,), tool=False)
def pool_answer(p: WithWords, caller: Caller) -> QuestionRow:
    """Answer an agent in words. This gives no permission: your words say what to do instead."""
    return _answered(p, caller, AnswerKind.WORDS, p.words)


@operation(
    WithWords,
    *OF_ONE,
    Code.CONTENT_TOO_LARGE,
    CoordinationCode.WORKSPACE_UNRESOLVED,
    requires=(OPERATORS_ONLY,),
    tool=False,
)
def pool_answer_late(p: WithWords, caller: Caller) -> QuestionRow:
    """Answer a question that expired: its agent gets your words as a message."""
    operator = operator_behind(caller)
    return question_row(questions.answer_late(question_id=p.question_id, words=p.words, operator=operator))


@operation(OfQuestion, *OF_ONE, requires=(OPERATORS_ONLY,), tool=False)
def pool_dismiss_question(p: OfQuestion, caller: Caller) -> QuestionRow:
    """Leave a question that expired unanswered, and do not show it any more."""
    operator = operator_behind(caller)
    return question_row(questions.answer_late(question_id=p.question_id, words=None, operator=operator))


@operation(OfQuestion, Code.VALIDATION_ERROR, Code.NOT_FOUND, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_get_question(p: OfQuestion, caller: Caller) -> QuestionRow:
    """Return a question in full."""
    return question_row(questions.get(p.question_id))


class ListQuestions(Params):
    which: Literal["asked", "ended"] = "asked"
    agent_id: Annotated[Id | None, Field(description="Only this agent's questions.")] = None
    limit: Annotated[Limit, Field(description=f"{MOST_LISTED} at most.")] = LISTED


class Questions(TypedDict):
    questions: list[QuestionRow]


@operation(ListQuestions, Code.VALIDATION_ERROR, requires=(OPERATORS_ONLY,), tool=False, read_only=True)
def pool_list_questions(p: ListQuestions, caller: Caller) -> Questions:
    """List open questions, oldest first, or ended ones, newest first."""
    found = selectors.questions(p.which, p.agent_id, min(p.limit, MOST_LISTED))
    return {"questions": [question_row(question) for question in found]}


def _answered(
    p: OfQuestion, caller: Caller, verdict: AnswerKind, words: str | None = None, scope: str = "agent"
) -> QuestionRow:
    operator = operator_behind(caller)
    answered = questions.answer_question(
        question_id=p.question_id, verdict=verdict, words=words, scope=scope, operator=operator
    )
    return question_row(answered)
