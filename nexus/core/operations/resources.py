"""What a toolset gives agents to read beside its tools: texts, resources and prompts, whatever transport shows them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, unquote

from nexus.core.operations.caller import Caller
from nexus.core.operations.replies import Data

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
