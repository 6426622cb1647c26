"""The schemas of the files in `.nexus`: those of nexus-core 0.2, and how files of later versions, up to 0.21, differ.

A document has the fields of 0.2; absent values are left out. The other fields of its file are in `extra`, and are
written back. A file stays in its version: since 0.10 or so a task's owner is an object, and what is empty is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from types import NoneType
from typing import Annotated, Any, Generic, Literal, NotRequired, TypeVar, cast

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
MOST_CYCLES = 5_000  # of a history: one transaction gives all of them their positions
MOST_VALUES = 2_000_000  # of a file: more than any plan has, parsed in less than a second
VERSION = "schema_version"  # the field that later versions write into a cycle
LATER = "1.0"  # its value
IN_LATER_TASK = (  # the fields of a task in the order in which they write them
    *("id", "title", "status", "context", "acceptance", "approach", "risk", "plan_issue", "deps", "owner"),
    "created_at",
)
MOST = 2**53  # every consumer reads integers up to this exactly
Number = Annotated[int, Field(ge=1, le=MOST)]
Extra = Annotated[dict[str, Any], Field(description="Further fields of its file.")]
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
    extra: NotRequired[Extra]


class PlanDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    id: Number
    topic: str
    issues: Annotated[list[IssueEntry], Field(max_length=MOST_ISSUES)]
    research_summary: NotRequired[str]
    created_at: str
    extra: NotRequired[Extra]


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
    extra: NotRequired[Extra]


class TasksDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    goal: str
    decisions: list[str]
    tasks: Annotated[list[TaskEntry], Field(max_length=MOST_TASKS)]
    extra: NotRequired[Extra]


class CycleEntry(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    completed_at: str
    branch: str  # empty where a later version found none
    plan: PlanDocument | None
    tasks: list[TaskEntry]
    extra: NotRequired[Extra]


class HistoryDocument(TypedDict):
    __pydantic_config__ = STRICT  # type: ignore[misc]

    cycles: list[CycleEntry]
    extra: NotRequired[Extra]


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


def _merged(document: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: each for name, each in document.items() if name != "extra"}, **document.get("extra", {})}


def _same(value: dict[str, Any]) -> dict[str, Any]:
    return value


@dataclass(frozen=True)
class Shape:
    """A schema, how later versions write it, and its parts that are validated one by one.

    A call into a C library stops every other thread of the process until it returns.
    """

    schema: Any
    entries: str = ""  # the name of its long list, if it has one
    of: Shape | None = None  # an entry of that
    most: float = inf  # entries
    plan: Shape | None = None  # of its field `plan`
    absent: Mapping[str, Callable[[], Any]] = field(default_factory=dict)  # what later versions leave out where empty
    earlier: Callable[[dict[str, Any]], dict[str, Any]] = _same  # from an object of any version
    in_version: Callable[[Mapping[str, Any]], dict[str, Any]] = _merged  # and back

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.schema)

    @cached_property
    def _fields(self) -> frozenset[str]:
        return frozenset(self.schema.__annotations__) - {"extra"}

    def validated(self, value: Any, *where: str | int) -> Any:
        """Return a file's object as its document, with its keys in the schema's order.

        Raises ValueError with the field and the fault.
        """
        if not isinstance(value, dict) or "extra" not in getattr(self.schema, "__annotations__", ()):
            return self._checked(value, where)
        extra = {name: each for name, each in value.items() if name not in self._fields}
        if extra and unstorable(extra, lambda _: inf):
            raise ValueError(f"{_at(*where, next(iter(extra)))}: it holds a value that no store takes")
        value = {name: each for name, each in value.items() if name in self._fields}
        value |= {name: empty() for name, empty in self.absent.items() if name not in value}
        value = self.earlier({**value, "extra": extra} if extra else value)
        parts = self._parts(value)
        found = self._checked({**value, **{name: [] if name == self.entries else None for name in parts}}, where)
        for name, (shape, part) in parts.items():
            if not isinstance(part, list):
                found[name] = shape.validated(part, *where, name)
            elif len(part) > self.most:
                raise ValueError(f"{_at(*where, name)}: it has more than {self.most} entries")
            else:
                found[name] = [shape.validated(entry, *where, name, number) for number, entry in enumerate(part)]
        return found

    def in_file(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a document as its file contains it: the reverse of `validated`."""
        found = {**document}
        for name, (shape, part) in self._parts(document).items():
            found[name] = [shape.in_file(entry) for entry in part] if isinstance(part, list) else shape.in_file(part)
        return self.in_version(found)

    def _parts(self, value: Mapping[str, Any]) -> dict[str, tuple[Shape, Any]]:
        found: dict[str, tuple[Shape, Any]] = {}
        if self.of is not None and isinstance(value.get(self.entries), list):
            found[self.entries] = self.of, value[self.entries]
        if self.plan is not None and isinstance(value.get("plan"), dict):
            found["plan"] = self.plan, value["plan"]
        return found

    def _checked(self, value: Any, where: tuple[str | int, ...]) -> Any:
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise ValueError(f"{_at(*where, *first['loc']) or 'the document'}: {first['msg']}") from None


def has_later_owner(task: Mapping[str, Any]) -> bool:
    """Return whether the file of a task's document has its owner as an object, as later versions do."""
    return "owner" in task.get("extra", {})


def _earlier_task(task: dict[str, Any]) -> dict[str, Any]:
    """Take a later version's owner apart. What 0.2 has no field for stays in `extra`."""
    owner = task.get("owner")
    if not isinstance(owner, dict):
        return task
    rest = {name: each for name, each in owner.items() if name not in ("role", "agent_id")}
    names = {"owner": owner.get("role") or None, "owner_agent_id": owner.get("agent_id")}
    given = {name: each for name, each in names.items() if each is not None}
    found = {name: each for name, each in task.items() if name != "owner"}
    return {**found, **given, "extra": {**task.get("extra", {}), "owner": rest}}


def analyses(extra: Mapping[str, Any] | None) -> list[Any]:
    """Return the analyses of an issue, from the further fields of its file."""
    found = (extra or {}).get("analysis")
    return found if isinstance(found, list) else []


def _task_in_version(task: Mapping[str, Any]) -> dict[str, Any]:
    found = _merged(task)
    if has_later_owner(task):
        agent = {"agent_id": found.pop("owner_agent_id")} if "owner_agent_id" in found else {}
        found["owner"] = {"role": task.get("owner", ""), **agent, **task["extra"]["owner"]}
        found.setdefault("acceptance", "")
        if not found["deps"]:
            del found["deps"]
        return {name: found[name] for name in dict.fromkeys([*IN_LATER_TASK, *found]) if name in found}
    return found


def _tasks_in_version(document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out an empty goal and empty decisions where later versions wrote the tasks."""
    found = _merged(document)
    later = any(isinstance(task.get("owner"), dict) for task in found["tasks"])
    return {name: each for name, each in found.items() if name == "tasks" or each or not later}


def _cycle_in_version(cycle: Mapping[str, Any]) -> dict[str, Any]:
    found = _merged(cycle)
    if VERSION not in found:
        return found
    if found["plan"] is None:
        del found["plan"]
    return {VERSION: found[VERSION], **found}


def _at(*where: str | int) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where).lstrip(".")


class StateFile(Generic[T]):
    """A file in `.nexus` and its schema."""

    def __init__(self, path: str, shape: Shape) -> None:
        self.path, self._shape = path, shape

    def text(self, document: T) -> bytes:
        """Return a document as every consumer writes it."""
        return text_of(self._shape.in_file(cast(Mapping[str, Any], document)))

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
        if newer := _newer_version(parsed):
            raise self.fault(f"{VERSION} {newer[:20]!r} is newer than this Nexus knows ({LATER}); update Nexus")
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


def _newer_version(document: Any) -> str | None:
    """Return the version of a file, or of a cycle in it, if we do not know it: its fields may mean something else."""
    if not isinstance(document, Mapping):
        return None
    stated = (each.get("extra", {}).get(VERSION, LATER) for each in (document, *document.get("cycles", ())))
    return next((str(version) for version in stated if str(version).partition(".")[0] not in ("0", "1")), None)


def _numbered(document: Any) -> list[Any]:
    if not isinstance(document, Mapping):
        return []
    entries: list[Any] = document.get("issues") or document.get("tasks") or []
    return entries


_ISSUE = Shape(IssueEntry)
_PLAN = Shape(PlanDocument, "issues", _ISSUE, MOST_ISSUES)
_TASK = Shape(TaskEntry, absent={"deps": list}, earlier=_earlier_task, in_version=_task_in_version)
_TASKS = Shape(
    TasksDocument, "tasks", _TASK, MOST_TASKS, absent={"goal": str, "decisions": list}, in_version=_tasks_in_version
)
CYCLE = Shape(
    CycleEntry,
    "tasks",
    _TASK,
    MOST_TASKS,
    _PLAN,
    absent={"plan": NoneType, "tasks": list},
    in_version=_cycle_in_version,
)

PLAN: StateFile[PlanDocument] = StateFile(directory.PLAN, _PLAN)
TASKS: StateFile[TasksDocument] = StateFile(directory.TASKS, _TASKS)
HISTORY: StateFile[HistoryDocument] = StateFile(directory.HISTORY, Shape(HistoryDocument, "cycles", CYCLE, MOST_CYCLES))
TRACKER: StateFile[list[TrackedAgent]] = StateFile(directory.AGENTS, Shape(list[TrackedAgent]))


def task_in_file(task: TaskEntry) -> dict[str, Any]:
    """Return a task as its file contains it."""
    return _TASK.in_file(cast(Mapping[str, Any], task))


def cycle(text: str) -> Any:
    """Return the document of a cycle that was imported or closed, from the text that its file has."""
    return CYCLE.validated(json.loads(text))


def _unchanged(value: dict[str, Any]) -> dict[str, Any]:
    """Return the object unchanged. With this call for each object, `json.loads` lets other threads run."""
    return value


def text_of(document: Any) -> bytes:
    """Return JSON as every consumer writes it: two spaces, no escapes beyond JSON's own, a newline at the end."""
    return to_json(document, indent=2) + b"\n"
