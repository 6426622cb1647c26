"""Settings of the MCP bridge."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


def names(text: str) -> list[str]:
    """Return the toolsets in a text, separated by commas. Raises ValueError when there is none."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise ValueError("name toolsets, separated by commas, or all")
    return found


@section
class McpBridgeSettings(Settings):
    """Settings of MCP connections."""

    toolsets: str | None = setting(
        None,
        "The toolsets of MCP connections that choose none, separated by commas, or all. For runmcp: its own choice.",
        check=names,
        live=False,
    )
