"""Nexus's errors as the protocol's own errors, for requests that are not calls of tools."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from nexus.core.operations.runner import documented


def as_mcp(error: Exception, code: int = INTERNAL_ERROR) -> MCPError:
    """Return the MCP error for a documented one."""
    known = documented(error)
    return MCPError(code, known.message, {"code": known.code.value, **known.details})
