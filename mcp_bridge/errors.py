"""Failures as the protocol's own errors, where no tool's result can carry them."""

from __future__ import annotations

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from nexus.core.operations.runner import documented


def as_mcp(error: Exception, code: int = INTERNAL_ERROR) -> MCPError:
    """The MCP error that carries the documented one."""
    known = documented(error)
    return MCPError(code, known.message, {"code": known.code.value, **known.details})
