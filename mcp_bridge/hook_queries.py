"""The hub's side of `nexus hook`: it answers as the calling process would. See `remote`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic_core import to_jsonable_python

from nexus.core.harness_events import Activity
from nexus.core.operations.dispatch import documented
from nexus.hooks import store_queries
from nexus.hooks.harness import MAX_ID, HookCall

LONGEST_PATH = 4096
Moment = Annotated[float, Field(ge=0, le=253_402_300_799)]  # unix time, up to the year 9999


class Strict(BaseModel, extra="forbid", strict=True):
    """A model that refuses unknown fields. The size of its line is limited before."""


class Asker(Strict):
    """The client's call, as far as an answer needs it."""

    client: Annotated[str, Field(max_length=MAX_ID)]
    event: Literal["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "Wake"] | None
    root: Annotated[str, Field(max_length=LONGEST_PATH)]
    agent_id: Annotated[str, Field(max_length=MAX_ID)]


class Refresh(Strict):
    name: Literal["refresh"]
    activity: Activity | None = None
    at: Moment | None = None
    until: Moment | None = None


class Seen(Strict):
    name: Literal["seen"]


class Owed(Strict):
    name: Literal["owed"]
    keys: list[str]


class Waiting(Strict):
    name: Literal["waiting"]
    known: list[str]


class Perform(Strict):
    name: Literal["perform"]
    operation: str
    arguments: dict[str, Any]


class Question(Strict):
    """A query of `nexus.hooks.store_queries`, with its arguments."""

    call: Asker
    question: Annotated[Refresh | Seen | Owed | Waiting | Perform, Field(discriminator="name")]


def answer_hook(asked: Question, connection: str) -> dict[str, Any]:
    """Return the answer to the process of that connection: its data, or an error. Uses the store."""
    call = HookCall(**asked.call.model_dump(), connection=connection)
    question = asked.question.model_dump()
    try:
        return {"data": to_jsonable_python(store_queries.answer(question.pop("name"), call, **question))}
    except Exception as error:
        known = documented(error)
        return {"error": {"code": known.code.value, "message": known.message}}
