"""The streams of the log. Each app declares those that it writes to."""

from __future__ import annotations

from functools import cache

from nexus.core.apps import nexus_apps


@cache
def streams() -> dict[str, str]:
    """Return every stream with its description, by name."""
    return {name: holds for app in nexus_apps() for name, holds in app.streams().items()}
