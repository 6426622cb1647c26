"""Parameters of the operations that offer or plan work whose result is checked."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from handoffs.lifecycle import VERIFIER_KINDS
from nexus.core.operations.parameters import ShownAs, Terse

_TEXT = {"type": "string"}
_SHOWN = {"anyOf": [_TEXT, {
    "type": "object", "properties": dict.fromkeys(VERIFIER_KINDS, _TEXT), "additionalProperties": False,
}]}  # fmt: skip

Verifier = Annotated[
    Any,
    ShownAs(_SHOWN),
    Field(
        description='Who accepts the result: "creator" (the default with criteria), "operator" or agents: '
        '{"role":"…"}; never who did it.'
    ),
]
Criteria = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=500)]] | None,
    Terse(),
    Field(
        min_length=1,
        max_length=20,
        description="What the result is measured by: a sentence each for the verifier, or what Nexus tests itself: "
        '"check:NAME" runs a reviewed command of nexus.toml, "file:PATH" must exist, "unchanged:PATH" must not '
        "change.",
    ),
]
