"""Helpers for a request as the SDK passes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mcp_bridge.sessions import Session
from nexus.core.fairness import SLOT, CallSlot
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import documented

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Caller]
SlotOf = Callable[[Context], CallSlot | None]
SESSION = "nexus.session"  # in the scope of an HTTP request


def slot_of_request(ctx: Context) -> CallSlot | None:
    """Return the slot of an HTTP request; the process of one agent has none."""
    return ctx.request.scope.get(SLOT) if ctx.request else None


def session_of(ctx: Context) -> Session | None:
    """Return the session of an HTTP request; None without one."""
    session: Session | None = ctx.request.scope.get(SESSION) if ctx.request else None
    return session


def end_of_connection(ctx: Context) -> ExitStack:
    """Return what is done when the connection of a request is over: its session, or the server's one connection."""
    session = session_of(ctx)
    stack: ExitStack = ctx.lifespan_context if session is None else session.ends
    return stack


def is_modern(ctx: Context) -> bool:
    """Return whether the request has no session: the protocol from 2026-07-28 on has none."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def as_mcp(error: Exception, code: int = INTERNAL_ERROR) -> MCPError:
    """Return the MCP error for a documented one."""
    known = documented(error)
    return MCPError(code, known.message, {"code": known.code.value, **known.details})
