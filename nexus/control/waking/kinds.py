"""The kinds of items that may wake an agent: mail, and those that the apps declare."""

from __future__ import annotations

from functools import cache

from nexus.core.apps import nexus_apps
from nexus.core.contributions import WakeKind
from nexus.core.operations.errors import invalid

MAIL = "mail"  # leased for the turn: `nexus.control.waking.mail`


@cache
def declared() -> dict[str, WakeKind]:
    """Return the kinds besides mail, by name."""
    return {kind.name: kind for app in nexus_apps() for kind in app.wake_kinds()}


def titles() -> dict[str, str]:
    """Return the titles of all kinds, by name."""
    return {MAIL: "mail to it", **{name: kind.title for name, kind in declared().items()}}


def check(names: list[str]) -> None:
    """Check names of kinds. Raises VALIDATION_ERROR for an unknown one."""
    known = sorted(titles())
    for name in names:
        if name not in known:
            raise invalid(f"wake_on takes {', '.join(known)}, not {name[:100]!r}.", field="wake_on")
