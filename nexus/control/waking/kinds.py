"""What may wake an agent: its mail, and what the apps declare."""

from __future__ import annotations

from functools import cache

from nexus.core.apps import nexus_apps
from nexus.core.contributions import WakeKind
from nexus.core.operations.errors import invalid

MAIL = "mail"  # leased for the turn: `nexus.control.waking.mail`


@cache
def declared() -> dict[str, WakeKind]:
    """What may wake beside mail, by its name."""
    return {kind.name: kind for app in nexus_apps() for kind in app.wake_kinds()}


def titles() -> dict[str, str]:
    """What wakes, for people, by its name."""
    return {MAIL: "mail to it", **{name: kind.title for name, kind in declared().items()}}


def check(names: list[str]) -> None:
    """Raises VALIDATION_ERROR for what wakes nobody."""
    known = sorted(titles())
    for name in names:
        if name not in known:
            raise invalid(f"wake_on takes {', '.join(known)}, not {name[:100]!r}.", field="wake_on")
