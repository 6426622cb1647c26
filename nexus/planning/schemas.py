"""The schemas of the files in `.nexus`: no other fields, and absent values are left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from typing_extensions import TypedDict

from nexus.core.operations.errors import NexusError
from nexus.core.operations.validation import unstorable
from nexus.planning import directory
from nexus.planning.directory import PlanningCode

T = TypeVar("T")
STRICT = ConfigDict(strict=True, extra="forbid")
MOST_ISSUES = 1_000  # of a plan
MOST_TASKS = 10_000  # of a cycle
MOST_CYCLES = 5_000  # of a history: one transaction of 50 ms gives all of them their positions
MOST_VALUES = 2_000_000  # of a file: more than any plan has, parsed in less than a second
MOST = 2**53  # every consumer reads integers up to this exactly
Number = Annotated[int, Field(ge=1, le=MOST)]
Reference = Annotated[int, Field(ge=-MOST, le=MOST)]  # to an issue or a task, which may not exist


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


@dataclass(frozen=True)
class Shape:
    """A schema and, if it has one, its long list, whose entries are validated one by one.

    A call into a C library stops every other thread of the process until it returns.
    """

    schema: Any
    entries: str = ""  # the name of the list
    of: Shape | None = None
    most: float = inf  # entries

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.schema)

    def validated(self, value: Any, *where: str | int) -> Any:
        """Return the value with its keys in the schema's order. Raises ValueError with the field and the fault."""
        entries = value.get(self.entries) if self.of is not None and isinstance(value, dict) else None
        if not isinstance(entries, list):
            return self._checked(value, where)
        if len(entries) > self.most:
            raise ValueError(f"{_at(*where, self.entries)}: it has more than {self.most} entries")
        found = self._checked({**value, self.entries: []}, where)
        assert self.of is not None
        found[self.entries] = [
            self.of.validated(entry, *where, self.entries, number) for number, entry in enumerate(entries)
        ]
        return found

    def _checked(self, value: Any, where: tuple[str | int, ...]) -> Any:
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ValueError(f"{_at(*where, *first['loc']) or 'the document'}: {first['msg']}") from None


def _at(*where: str | int) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")


class StateFile(Generic[T]):
    """A file in `.nexus` and its schema."""

    def __init__(self, path: str, shape: Shape) -> None:
        self.path, self._shape = path, shape

    def parse(self, content: bytes) -> T:
        """Return the document of a file's text. Raises STATE_FILE_INVALID with the fault.

        It may take seconds, but other threads wait only for parts of that.
        """
        if content.count(b",") > MOST_VALUES:
            raise self.fault(f"it holds more than {MOST_VALUES} values")
        try:
            text = content.decode()  # json would guess the encoding of bytes
            document = json.loads(text, object_hook=_unchanged)
        except (ValueError, RecursionError) as error:
            raise self.fault(f"it is no JSON: {error}"[:200]) from None
        try:
            parsed: T = self._shape.validated(document)
        except ValueError as error:
            raise self.fault(str(error)) from None
        if b"\\u" in content and unstorable({"": document}, lambda _: inf):
            raise self.fault("a text in it holds a NUL character or a lone surrogate, which no store takes")
        numbers = [entry["id"] for entry in _numbered(parsed)]
        if len(set(numbers)) < len(numbers):
            raise self.fault("it contains an id twice")
        return parsed

    def fault(self, what: str) -> NexusError:
        """Return the error for a file that breaks its schema."""
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


_TASK, _ISSUE = Shape(TaskEntry), Shape(IssueEntry)
_CYCLE = Shape(CycleEntry, "tasks", _TASK, MOST_TASKS)

PLAN: StateFile[PlanDocument] = StateFile(directory.PLAN, Shape(PlanDocument, "issues", _ISSUE, MOST_ISSUES))
TASKS: StateFile[TasksDocument] = StateFile(directory.TASKS, Shape(TasksDocument, "tasks", _TASK, MOST_TASKS))
HISTORY: StateFile[HistoryDocument] = StateFile(
    directory.HISTORY, Shape(HistoryDocument, "cycles", _CYCLE, MOST_CYCLES)
)
RUNTIME: StateFile[RuntimeDocument] = StateFile(directory.RUNTIME, Shape(RuntimeDocument))
TRACKER: StateFile[list[TrackedAgent]] = StateFile(directory.AGENTS, Shape(list[TrackedAgent]))


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object unchanged. With this call for each object, `json.loads` lets other threads run."""
    return value


def text_of(document: Any) -> bytes:
    """Return a document as every consumer writes it: two spaces, no escapes beyond JSON's own, a newline at the end."""
    return to_json(document, indent=2) + b"\n"
