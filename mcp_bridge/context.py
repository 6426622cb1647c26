"""Helpers for a request as the SDK passes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from nexus.core.fairness import SLOT, CallSlot
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import documented

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Caller]
SlotOf = Callable[[Context], CallSlot | None]


def slot_of_request(ctx: Context) -> CallSlot | None:
    """Return the slot of an HTTP request; the process of one agent has none."""
    return ctx.request.scope.get(SLOT) if ctx.request else None


def is_modern(ctx: Context) -> bool:
    """Return whether the request has no session: the protocol from 2026-07-28 on has none."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def as_mcp(error: Exception, code: int = INTERNAL_ERROR) -> MCPError:
    """Return the MCP error for a documented one."""
    known = documented(error)
    return MCPError(code, known.message, {"code": known.code.value, **known.details})
