"""How the outcome of a call goes on the wire: each toolset has its way, and this is the usual one, the envelope."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
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
    """Data with a `hint` for who probably meant something else; envelopes carry it beside the data."""

    def __init__(self, data: Data, hint: str) -> None:
        super().__init__(data)
        self.hint = hint


def hinted(data: D, hint: str | None) -> D:
    """The data, with a hint where there is one."""
    return data if hint is None else cast(D, Hinted(data, hint))


@dataclass(frozen=True)
class Outcome:
    """How a call ended: with data, or with an error."""

    data: Data | None = None
    error: NexusError | None = None

    @property
    def status(self) -> int:
        """The HTTP status: 200, or that of the error's code."""
        return 200 if self.error is None else getattr(self.error, "status", self.error.code.status)

    @property
    def headers(self) -> dict[str, str]:
        """The HTTP headers that tell more of it: when to try again."""
        seconds = self.error.details.get("retry_after_seconds") if self.error else None
        return {} if seconds is None else {"Retry-After": str(seconds)}

    def result(self) -> Data:
        """The data. Raises the error."""
        if self.error is not None:
            raise self.error
        assert self.data is not None
        return self.data


def as_json(outcome: Outcome, body: Body) -> str:
    """The body as one line of JSON."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Reply:
    """A toolset's form: the JSON object that REST and structured content carry, and the text that an agent reads."""

    body: Callable[[Outcome], Body]
    text: Callable[[Outcome, Body], str] = as_json
    bare: bool = False  # the body of a success is the data itself, as the OpenAPI schema then tells
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})  # of every body, as MCP tells it


def ok(data: Data | None = None) -> Body:
    """The success envelope."""
    body: Body = {"ok": True, "data": dict(data or {})}
    return {**body, "hint": data.hint} if isinstance(data, Hinted) else body


def failure(error: NexusError) -> Body:
    """The failure envelope; `details` only where there are any."""
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
    """The text `texts/<name>.md` of a package, read when it is first asked for."""

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
    """What is an agent's own and changes: it is read, and who subscribed is told of changes."""

    prefix: str  # of its URI; the agent's id follows, percent-encoded
    name: str
    description: str
    read: Callable[[Caller, str], Awaitable[Data]]  # of an agent_id; raises NexusError
    changed: Callable[[Any], Iterable[str]]  # the agents for whom an event of the log changed it

    def uri(self, agent_id: str) -> str:
        """The URI of an agent's."""
        return self.prefix + quote(agent_id, safe="")

    def agent(self, uri: str) -> str | None:
        """The agent whose a URI is; None when it is of something else."""
        return unquote(uri.removeprefix(self.prefix)) or None if uri.startswith(self.prefix) else None


@dataclass(frozen=True)
class Prompt:
    """A procedure that a person may start; `text` takes the arguments, all of which are required."""

    name: str
    description: str
    arguments: Mapping[str, str]  # what each is
    text: Callable[[Mapping[str, str]], str]
