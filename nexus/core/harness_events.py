"""Registration of what apps do at events of a coding harness.

`nexus hook` calls the handlers in each app's module `hook`, and asks the store its queries. Standard library alone:
most calls end without Django.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple


class HarnessEvent(StrEnum):
    """The points of a session, independent of the harness's names for them."""

    SESSION_START = "session_start"
    USER_MESSAGE = "user_message"
    SUBAGENT_SPAWN = "subagent_spawn"
    SUBAGENT_COMPLETE = "subagent_complete"
    PRE_TOOL_USE = "pre_tool_use"
    POST_TOOL_USE = "post_tool_use"
    SESSION_END = "session_end"
    CONTEXT_COMPACT = "context_compact"


class Activity(StrEnum):
    """What an agent does, as the hooks of its client tell it. Of several sessions of an agent, the one whose activity
    stands first here counts."""

    WORKING = "working"
    COMPACTING = "compacting"  # its client shortens its context
    IDLE = "idle"  # mail wakes it
    ASKS = "asks"  # its person: for a permission, a choice, or to log in
    OUT_OF_QUOTA = "out_of_quota"
    ASLEEP = "asleep"  # idle, and only its person can wake it; no hook tells it
    GONE = "gone"  # its client ended the session


def _unavailable(name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    raise NotImplementedError(name)


class HookEvent(NamedTuple):
    """One event of a harness; a field that the harness does not give is empty."""

    event: HarnessEvent
    client: str
    root: str  # the project, resolved
    settings: Any
    caller: str = ""  # the agent whose hook it is, by its id
    wanted: bool = False  # whoever installed the hook wants what acts on a project to act on this one
    heard: bool = False  # whether the agent whose event it is hears what is said now
    prompt: str = ""  # of the user
    goes_on: bool = False  # a session_start of a session that there was before
    agent_type: str = ""  # of the subagent; empty for the main agent
    agent_id: str = ""  # of the subagent, as the harness names it
    assignment: str = ""  # what a subagent was asked
    message: str = ""  # what a subagent said at its end
    tool: str = ""
    directory: str = ""  # in which the tool works
    files: tuple[str, ...] = ()  # that the tool is about
    edits: bool = False  # the tool changes them
    command: str = ""  # the line of shell that the tool runs
    failed: bool = False  # the tool's result is an error, or the subagent broke off
    # An operation by name with its arguments, as the hook's agent, in a Django that is started for it; its data. Raises
    # NexusError.
    perform: Callable[[str, Mapping[str, Any]], Mapping[str, Any]] = _unavailable


class HookAnswer(NamedTuple):
    """A handler's answer: to the agent, to the user, or why the tool may not be used."""

    context: str = ""
    warning: str = ""
    refusal: str = ""


NOTHING = HookAnswer()
Handler = Callable[[HookEvent], HookAnswer]
HANDLERS: list[Handler] = []


class HookQuery(NamedTuple):
    """Queries for the ids of items that wait for `:agent`, for the keys of its debts (`coordination.debts`), and for
    the ids of items that are for this agent itself; and a table that exists once they can be asked."""

    table: str
    waiting: str = ""
    owed: str = ""
    personal: str = ""


HOOK_QUERIES: list[HookQuery] = []
