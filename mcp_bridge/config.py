"""The settings of this app."""

from __future__ import annotations

from nexus.core.config import Settings, section, setting


def names(text: str) -> list[str]:
    """The toolsets that a text names, between commas. Raises ValueError when it names none."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise ValueError("name toolsets, separated by commas, or all")
    return found


@section
class McpBridgeSettings(Settings):
    """What MCP connections get."""

    toolsets: str | None = setting(
        None,
        "The toolsets of MCP connections that choose none, separated by commas, or all; runmcp's choice.",
        check=names,
        live=False,
    )
    retention_expired_tasks_keep_days: int = setting(
        1,
        "Tasks of MCP that expired longer ago than this (days) may be pruned.",
        minimum=0,
        maximum=36_500,
    )
