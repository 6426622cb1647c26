"""A transcript as a model's messages, extended during a turn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from nexus.control.models import Entry, Role
from nexus.control.services.transcript import estimate

UNANSWERED = "Error: the turn was interrupted before this call was answered; it may have been done."
LEFT_OUT = "[left out to make room; call again if you need it]"


@dataclass(frozen=True)
class Call:
    """A tool call, as a transcript keeps it in its `meta`."""

    id: str
    name: str
    arguments: dict[str, Any]


class Conversation:
    """Messages in the order that models require: every call is answered before anything else is said."""

    def __init__(self) -> None:
        self.messages: list[ModelMessage] = []
        self.open: dict[str, str] = {}  # names of calls without an answer, by id

    def heard(self, text: str) -> None:
        """Add a text that somebody sent to the agent."""
        self._close()
        self._request(UserPromptPart(text))

    def said(self, text: str, calls: Sequence[Call] = ()) -> None:
        """Add the model's answer, or its calls of tools."""
        self._close()
        spoken = [TextPart(text)] if text else []
        called = [ToolCallPart(call.name, call.arguments, call.id) for call in calls]
        if spoken or called:
            self.messages.append(ModelResponse([*spoken, *called]))
        self.open = {call.id: call.name for call in calls}

    def answered(self, call_id: str, result: str) -> None:
        """Add a tool's result; a result without an open call is ignored."""
        name = self.open.pop(call_id, None)
        if name is not None:
            self._request(ToolReturnPart(name, result, call_id))

    def fitted(self, tokens: int) -> list[ModelMessage] | None:
        """Return the messages within this number of tokens, leaving out the oldest tool results first; None if that is
        not enough."""
        fitting, over = list(self.messages), sum(map(_size, self.messages)) - tokens
        for number, message in enumerate(fitting):
            if over <= 0:
                break
            if isinstance(message, ModelRequest):
                shorter = replace(message, parts=[_left_out(part) for part in message.parts])
                over -= _size(message) - _size(shorter)
                fitting[number] = shorter
        return fitting if over <= 0 else None

    def _close(self) -> None:
        for call_id in list(self.open):
            self.answered(call_id, UNANSWERED)

    def _request(self, part: UserPromptPart | ToolReturnPart) -> None:
        """Add a part to one request for everything between two answers: some models require the two to alternate."""
        last = self.messages[-1] if self.messages else None
        if isinstance(last, ModelRequest):
            self.messages[-1] = replace(last, parts=[*last.parts, part])
        else:
            self.messages.append(ModelRequest([part]))


def conversation(entries: Iterable[Entry]) -> Conversation:
    """Return the conversation in an agent's transcript. A call that a crash left without a result gets one that says
    so."""
    result = Conversation()
    for entry in entries:
        meta = entry.meta or {}
        match entry.role:
            case Role.USER:
                by = meta.get("source_agent_id")
                result.heard(f"[from agent {by}]\n{entry.content}" if by else entry.content)
            case Role.ASSISTANT:
                result.said(entry.content, [_call(each) for each in meta.get("tool_calls", [])])
            case Role.TOOL:
                result.answered(entry.tool_call_id or "", entry.content)
    return result


def summaries(entries: Iterable[Entry]) -> list[str]:
    """Return the summaries that compaction made."""
    return [entry.content for entry in entries if entry.role == Role.SYSTEM]


def _call(kept: dict[str, Any]) -> Call:
    arguments = kept.get("arguments")
    return Call(str(kept["id"]), str(kept["name"]).replace(".", "-"), arguments if isinstance(arguments, dict) else {})


def _left_out(part: Any) -> Any:
    if isinstance(part, ToolReturnPart) and len(str(part.content)) > len(LEFT_OUT):
        return replace(part, content=LEFT_OUT)
    return part


def _size(message: ModelMessage) -> int:
    return sum(
        estimate(str(part.args) if isinstance(part, ToolCallPart) else str(getattr(part, "content", "")))
        for part in message.parts
    )
