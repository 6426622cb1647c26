"""A request, as the SDK hands it to whoever answers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from core.operations.caller import Caller

Context = ServerRequestContext[Any, Any]
CallerOf = Callable[[Context], Caller]


def is_modern(ctx: Context) -> bool:
    """Whether it stands alone: the protocol from 2026-07-28 on has no sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
