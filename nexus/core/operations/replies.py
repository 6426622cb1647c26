"""The outcome of a call, its form on the wire, and what a toolset gives agents to read: texts, resources and prompts.

Each toolset has a form of reply; the usual one is the envelope.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar, cast
from urllib.parse import quote, unquote

from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError

Data = Mapping[str, Any]
D = TypeVar("D", bound=Data)
Body = dict[str, Any]


class Hinted(dict[str, Any]):
    """Data with a `hint` for a caller who probably meant something else; envelopes carry it besides the data."""

    def __init__(self, data: Data, hint: str) -> None:
        super().__init__(data)
        self.hint = hint


def hinted(data: D, hint: str | None) -> D:
    """Return the data, with a hint if there is one."""
    return data if hint is None else cast(D, Hinted(data, hint))


@dataclass(frozen=True)
class Outcome:
    """The end of a call: data, or an error."""

    data: Data | None = None
    error: NexusError | None = None

    @property
    def status(self) -> int:
        """The HTTP status: 200, or that of the error's code."""
        return 200 if self.error is None else getattr(self.error, "status", self.error.code.status)

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers for it: when to try again."""
        seconds = self.error.details.get("retry_after_seconds") if self.error else None
        return {} if seconds is None else {"Retry-After": str(seconds)}

    def result(self) -> Data:
        """Return the data. Raises the error."""
        if self.error is not None:
            raise self.error
        assert self.data is not None
        return self.data


def as_json(outcome: Outcome, body: Body) -> str:
    """Return the body as one line of JSON."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Reply:
    """A toolset's form of reply: the JSON object for REST and structured content, and the text that an agent reads."""

    body: Callable[[Outcome], Body]
    text: Callable[[Outcome, Body], str] = as_json
    bare: bool = False  # the body of a success is the data itself, as the OpenAPI schema then tells
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})  # of every body, as MCP tells it


def ok(data: Data | None = None) -> Body:
    """Return the success envelope."""
    body: Body = {"ok": True, "data": dict(data or {})}
    return {**body, "hint": data.hint} if isinstance(data, Hinted) else body


def failure(error: NexusError) -> Body:
    """Return the failure envelope; it has `details` only if there are any."""
    body: Body = {"code": error.code.value, "message": error.message}
    if error.details:
        body["details"] = error.details
    return {"ok": False, "error": body}


def _in_envelope(outcome: Outcome) -> Body:
    return ok(outcome.data) if outcome.error is None else failure(outcome.error)


ENVELOPE = Reply(
    _in_envelope,
    schema={
        "type": "object",
        "properties": {
            "ok": {"type": "boolean"},
            "data": {"type": "object"},
            "error": {"type": "object"},
            "hint": {"type": "string"},
        },
        "required": ["ok"],
    },
)


Text = Callable[[], str]


def packaged(package: str, name: str) -> Text:
    """Return a function that reads the text `texts/<name>.md` of a package when it is first called."""

    @cache
    def read() -> str:
        return files(package).joinpath("texts", f"{name}.md").read_text("utf-8")

    return read


@dataclass(frozen=True)
class Reference:
    """A page of Markdown that an agent reads when it needs it."""

    uri: str
    name: str
    description: str
    text: Text


@dataclass(frozen=True)
class AgentResource:
    """A resource that each agent has and that changes: agents read it, and subscribers are notified of changes."""

    prefix: str  # of its URI; the agent's id follows, percent-encoded
    name: str
    description: str
    read: Callable[[Caller, str], Awaitable[Data]]  # of an agent_id; raises NexusError
    changed: Callable[[Any], Iterable[str]]  # the agents for whom an event of the log changed it
    # Records that a push about these events was sent to an agent: (agent_id, events, how).
    pushed: Callable[[str, Sequence[Any], str], None] | None = None

    def uri(self, agent_id: str) -> str:
        """Return the URI of an agent's resource."""
        return self.prefix + quote(agent_id, safe="")

    def agent(self, uri: str) -> str | None:
        """Return the agent whose resource a URI names, or None."""
        return unquote(uri.removeprefix(self.prefix)) or None if uri.startswith(self.prefix) else None


@dataclass(frozen=True)
class Prompt:
    """A procedure that a person may start; `text` takes the arguments, all of which are required."""

    name: str
    description: str
    arguments: Mapping[str, str]  # what each is
    text: Callable[[Mapping[str, str]], str]
