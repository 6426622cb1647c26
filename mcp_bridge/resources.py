"""MCP resources and prompts: what an agent needs only sometimes, and its inbox to subscribe to."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote, unquote

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    GetPromptResult,
    Prompt,
    PromptArgument,
    PromptMessage,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    TextContent,
    TextResourceContents,
)

from coordination.toolset import arun
from core.operations.caller import Caller

REFERENCES = {
    "targets": "Who a message or a handoff is for: the grammar of targets.",
    "delivery": "Lanes, leases and dead letters of the inbox.",
    "monitoring": "Following the event log.",
}
REFERENCE, INBOX = "nexus://reference/", "nexus://inbox/"
FIRST_TURN = "first_turn"


@cache
def text(name: str) -> str:
    """A text of this package."""
    return files("mcp_bridge").joinpath("texts", f"{name}.md").read_text("utf-8")


def resources() -> list[Resource]:
    """The reference pages."""
    return [
        Resource(uri=REFERENCE + name, name=name, description=about, mime_type="text/markdown")
        for name, about in REFERENCES.items()
    ]


def templates() -> list[ResourceTemplate]:
    """The inbox of each agent: read it, or subscribe to be told of mail."""
    return [
        ResourceTemplate(
            uri_template=INBOX + "{agent_id}",
            name="inbox",
            description="Pending mail of an agent. Subscribe to be notified when mail arrives.",
            mime_type="application/json",
        )
    ]


def inbox_uri(agent_id: str) -> str:
    """The resource of an agent's inbox."""
    return INBOX + quote(agent_id, safe="")


def agent_of_inbox(uri: str) -> str | None:
    """The agent whose inbox a resource is; None when it is no inbox."""
    return unquote(uri.removeprefix(INBOX)) or None if uri.startswith(INBOX) else None


async def read(uri: str, caller: Caller) -> ReadResourceResult:
    """A resource's content. Raises an MCP error for an unknown one, and for an inbox that is not the caller's."""
    name = uri.removeprefix(REFERENCE)
    if uri.startswith(REFERENCE) and name in REFERENCES:
        return _contents(uri, "text/markdown", text(name))
    if agent_id := agent_of_inbox(uri):
        counts = await arun(caller, "inbox_count", {"agent_id": agent_id})
        pending = await arun(caller, "inbox_peek", {"agent_id": agent_id})
        if not pending["ok"]:
            raise MCPError(INVALID_PARAMS, pending["error"]["message"], {"code": pending["error"]["code"]})
        inbox = {**counts["data"], **pending["data"]}
        return _contents(uri, "application/json", json.dumps(inbox, ensure_ascii=False))
    raise MCPError(INVALID_PARAMS, f"No such resource: {uri[:200]}", {"uri": uri[:200]})


def prompts() -> list[Prompt]:
    """The procedure of an agent's first turn."""
    return [
        Prompt(
            name=FIRST_TURN,
            description="Join the team: register, open a session, look who is there, read your mail.",
            arguments=[
                PromptArgument(name="project_root", description="Absolute path of the project.", required=True),
                PromptArgument(name="agent_id", description="The id you will go by.", required=True),
            ],
        )
    ]


def prompt(name: str, arguments: dict[str, str] | None) -> GetPromptResult:
    """A prompt filled in. Raises an MCP error for an unknown one or a missing argument."""
    given = arguments or {}
    if name != FIRST_TURN:
        raise MCPError(INVALID_PARAMS, f"No such prompt: {name[:200]}")
    if missing := [needed for needed in ("project_root", "agent_id") if not given.get(needed)]:
        raise MCPError(INVALID_PARAMS, f"The prompt needs {' and '.join(missing)}.")
    you = f"You are agent {given['agent_id']!r} in the project {given['project_root']!r}."
    words = f"{text('instructions')}\n{you} Do your first turn now."
    return GetPromptResult(messages=[PromptMessage(role="user", content=TextContent(type="text", text=words))])


def _contents(uri: str, mime_type: str, body: str) -> ReadResourceResult:
    contents: list[Any] = [TextResourceContents(uri=uri, mime_type=mime_type, text=body)]
    return ReadResourceResult(contents=contents)
