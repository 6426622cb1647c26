"""The streams of the log: each app declares those that it writes to."""

from __future__ import annotations

from functools import cache

from nexus.core.apps import nexus_apps


@cache
def streams() -> dict[str, str]:
    """Every stream by name, with what it holds."""
    return {name: holds for app in nexus_apps() for name, holds in app.streams().items()}
