"""The files of `.nexus`, by their schema: no other field, and what is absent is left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from math import inf
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from core.operations.errors import NexusError
from core.operations.validation import unstorable
from planning import directory
from planning.errors import PlanningCode

T = TypeVar("T")
STRICT = ConfigDict(strict=True, extra="forbid")
MOST_ISSUES = 1_000  # of a plan
MOST_TASKS = 10_000  # of a cycle
MOST = 2**53  # what every consumer reads exactly
Number = Annotated[int, Field(ge=1, le=MOST)]
Reference = Annotated[int, Field(ge=-MOST, le=MOST)]  # to an issue or a task, which need not be there


class IssueEntry(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    id: Number
    title: str
    status: Literal["pending", "decided"]
    decision: NotRequired[str]
    how_agents: NotRequired[list[str]]
    how_summary: NotRequired[dict[str, str]]
    how_agent_ids: NotRequired[dict[str, str]]


class PlanDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    id: Number
    topic: str
    issues: Annotated[list[IssueEntry], Field(max_length=MOST_ISSUES)]
    research_summary: NotRequired[str]
    created_at: str


class TaskEntry(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    id: Number
    title: str
    context: str
    status: Literal["pending", "in_progress", "completed"]
    deps: list[Reference]
    approach: NotRequired[str]
    acceptance: NotRequired[str]
    risk: NotRequired[str]
    plan_issue: NotRequired[Reference]
    owner: NotRequired[str]
    owner_agent_id: NotRequired[str]
    owner_reuse_policy: NotRequired[Literal["fresh", "resume_if_same_artifact", "resume"]]
    created_at: NotRequired[str]


class TasksDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    goal: str
    decisions: list[str]
    tasks: Annotated[list[TaskEntry], Field(max_length=MOST_TASKS)]


class CycleEntry(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    completed_at: str
    branch: Annotated[str, Field(min_length=1)]
    plan: PlanDocument | None
    tasks: list[TaskEntry]


class HistoryDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    cycles: list[CycleEntry]


class RuntimeDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    teams_enabled: bool
    session_started_at: str
    plugin_version: Annotated[str, Field(min_length=1)]


class TrackedAgent(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    agent_type: Annotated[str, Field(min_length=1)]
    agent_id: Annotated[str, Field(min_length=1)]
    started_at: str
    resume_count: Annotated[int, Field(ge=0)]
    status: Literal["running", "completed"]
    last_resumed_at: NotRequired[str]
    stopped_at: NotRequired[str]
    last_message: NotRequired[str]
    files_touched: NotRequired[list[str]]


class StateFile(Generic[T]):
    """A file below `.nexus` and its schema."""

    def __init__(self, path: str, schema: Any) -> None:
        self.path, self._schema = path, schema
        self._adapter = cache(lambda: TypeAdapter(schema))  # built when it is first needed

    def parse(self, content: bytes) -> T:
        """The document of a file's text. Raises STATE_FILE_INVALID, which names the fault."""
        try:
            document = json.loads(content.decode())  # bytes it would guess an encoding of
            parsed: T = self._adapter().validate_python(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
            raise self.fault(f"{where or 'the document'}: {first['msg']}") from None
        except (ValueError, RecursionError) as error:
            raise self.fault(f"it is no JSON: {error}"[:200]) from None
        if b"\\u" in content and unstorable({"": document}, lambda _: inf):
            raise self.fault("a text in it holds a NUL character or a lone surrogate, which no store takes")
        numbers = [entry["id"] for entry in _numbered(parsed)]
        if len(set(numbers)) < len(numbers):
            raise self.fault("an id stands in it twice")
        return parsed

    def fault(self, what: str) -> NexusError:
        """The error for a file that breaks its schema."""
        return NexusError(
            PlanningCode.STATE_FILE_INVALID,
            f".nexus/{self.path} breaks its schema: {what}. It was left as it is; correct it, or move it away.",
            {"file": f".nexus/{self.path}", "fault": what},
        )


def _numbered(document: Any) -> list[Any]:
    if not isinstance(document, Mapping):
        return []
    entries: list[Any] = document.get("issues") or document.get("tasks") or []
    return entries


PLAN: StateFile[PlanDocument] = StateFile(directory.PLAN, PlanDocument)
TASKS: StateFile[TasksDocument] = StateFile(directory.TASKS, TasksDocument)
HISTORY: StateFile[HistoryDocument] = StateFile(directory.HISTORY, HistoryDocument)
RUNTIME: StateFile[RuntimeDocument] = StateFile(directory.RUNTIME, RuntimeDocument)
TRACKER: StateFile[list[TrackedAgent]] = StateFile(directory.AGENTS, list[TrackedAgent])


def text_of(document: Any) -> bytes:
    """A document as every consumer writes it: two spaces, no escapes beyond JSON's own, a newline at the end."""
    return to_json(document, indent=2) + b"\n"
