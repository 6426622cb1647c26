"""How the pages show what is the bus's own."""

from __future__ import annotations

from typing import Any

from django import template

from coordination.routing import describe

register = template.Library()


@register.filter
def target(value: Any) -> str:
    """A target in words."""
    return describe(value)
