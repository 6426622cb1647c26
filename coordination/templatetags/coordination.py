"""Template filters for data of the bus."""

from __future__ import annotations

from typing import Any

from django import template

from coordination.routing import describe

register = template.Library()


@register.filter
def target(value: Any) -> str:
    """Return a target in words."""
    return describe(value)
