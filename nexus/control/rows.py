"""Rows of the pool, as clients see them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, NamedTuple, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from nexus.control.models import Entry, PoolAgent, Question, QuestionStatus, Role
from nexus.core.clock import iso, now
from nexus.core.operations.parameters import Time, one_of


class PoolAgentRow(TypedDict):
    agent_id: str
    is_temp: bool
    created_at: str
    message_count: int
    should_shutdown: bool
    parent_agent_id: str | None
    child_count: int
    halted_at_iteration_limit: bool
    model: Annotated[str, Field(description="Its runner.")]
    last_action_at: str
    permission_level: str
    cwd: str
    write_paths: list[str]


class Living(NamedTuple):
    """Columns that a list reads of a living agent, by name. Reading model instances would take three times as long."""

    pk: str
    parent_id: str | None
    agent_id: str
    is_temporary: bool
    created_at: datetime
    entries_known: int
    should_shutdown: bool
    parent__agent_id: str | None
    halted: bool
    runner: str
    last_action_at: datetime
    preset: str
    cwd: str
    write_paths: list[str]


class TokensRow(TypedDict):
    system: int
    tools: int
    messages: int
    total: int
    budget: int
    available: int
    remaining: int


class NewRepositories(TypedDict):
    set_aside: Annotated[list[str], Field(description="The newest 20, by their new names.")]
    unsafe: Annotated[str, Field(description="Why the last look for others failed; empty when it did not.")]


class ContextRow(TypedDict):
    message_count: int
    system_prompt: bool
    halted_at_iteration_limit: bool
    last_iteration_count: int
    max_tool_iterations: int
    new_repositories: NotRequired[
        Annotated[NewRepositories, Field(description="Git repositories that appeared where its programs write.")]
    ]


class PoolMessageRow(TypedDict):
    index: int
    role: str
    content: str
    tool_call_id: str | None
    meta: NotRequired[dict[str, Any]]


class QuestionRow(TypedDict):
    question_id: str
    agent_id: str
    kind: str
    title: str
    detail: str
    subject: str
    status: Annotated[str, one_of(QuestionStatus)]
    allowed: Annotated[bool, Field(description="Whether the agent may go on; false while nobody answered.")]
    always: bool
    words: str | None
    answered_by: str | None
    asked_at: Time
    expires_at: Time


def agent_row(agent: Living, *, children: int) -> PoolAgentRow:
    """Return the row of a pool agent; `children` is the number of its living children."""
    return {
        "agent_id": agent.agent_id,
        "is_temp": agent.is_temporary,
        "created_at": iso(agent.created_at),
        "message_count": agent.entries_known,
        "should_shutdown": agent.should_shutdown,
        "parent_agent_id": agent.parent__agent_id,
        "child_count": children,
        "halted_at_iteration_limit": agent.halted,
        "model": agent.runner,
        "last_action_at": iso(agent.last_action_at),
        "permission_level": agent.preset,
        "cwd": agent.cwd,
        "write_paths": agent.write_paths,
    }


def context_row(agent: PoolAgent, *, messages: int, system_prompt: bool, max_iterations: int) -> ContextRow:
    """Return the row of an agent's context."""
    row: ContextRow = {
        "message_count": messages,
        "system_prompt": system_prompt,
        "halted_at_iteration_limit": agent.halted,
        "last_iteration_count": agent.last_iterations,
        "max_tool_iterations": max_iterations,
    }
    if agent.new_repositories is not None:
        row["new_repositories"] = agent.new_repositories
    return row


def message_row(entry: Entry, index: int) -> PoolMessageRow:
    """Return the row of a message in a transcript."""
    row: PoolMessageRow = {
        "index": index,
        "role": Role(entry.role).value,
        "content": entry.content,
        "tool_call_id": entry.tool_call_id,
    }
    if entry.meta is not None:
        row["meta"] = entry.meta
    return row


ASKED = QuestionStatus.ASKED.value


def question_row(question: Question) -> QuestionRow:
    """Return the row of a question as of now: after its time it counts as expired."""
    over = question.status == QuestionStatus.ASKED and question.expires_at <= now()
    return {
        "question_id": question.question_id,
        "agent_id": question.agent_id,
        "kind": question.kind,
        "title": question.title,
        "detail": question.detail,
        "subject": question.subject,
        "status": QuestionStatus.EXPIRED.value if over else QuestionStatus(question.status).value,
        "allowed": question.is_allowed,
        "always": question.always,
        "words": question.words,
        "answered_by": question.answered_by,
        "asked_at": iso(question.asked_at),
        "expires_at": iso(question.expires_at),
    }
