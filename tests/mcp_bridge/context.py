"""How much of an agent's context a choice of toolsets takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mcp_types import Tool

SHOWN = {"name", "description", "input_schema", "annotations"}  # clients keep titles and answers' schemas to themselves


def shown(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as clients show them to their models."""
    return [tool.model_dump(by_alias=True, mode="json", exclude_none=True, include=SHOWN) for tool in tools]


def characters(instructions: str, tools: Sequence[Tool]) -> int:
    """The length of instructions and tools."""
    return len(instructions) + len(json.dumps({"tools": shown(tools)}, ensure_ascii=False))
