"""The check whether a tool would edit what another agent holds. Standard library only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from nexus.core.harness_events import HookEvent
from nexus.reservations.guard import repository
from nexus.reservations.guard.holdings import opened
from nexus.reservations.guard.repository import Repository

if TYPE_CHECKING:
    from nexus.reservations.guard.held import HeldFile


def warning(what: HookEvent) -> str:
    """Return the warning for a tool's edit; the empty string when nobody else holds its files. Raises Unreadable."""
    settings = what.settings
    if settings.database_url is None and not settings.database.exists():
        return ""
    conflicts: list[HeldFile] = []
    with opened(settings.database_url or str(settings.database)) as store:
        for here, paths in _by_repository(what).items():
            projects = store.projects(here)
            conflicts += store.conflicts(here, projects, what.caller, paths) if projects else []
    if not conflicts:
        return ""
    from nexus.reservations.guard import words  # rarely needed

    return words.edit(what.caller, conflicts, stopped=settings.guard_edits == "stop")


def _by_repository(what: HookEvent) -> dict[Repository, list[str]]:
    """Return the files by repository, or by project where there is none; a link counts with its own path and its
    target."""
    found: dict[Repository, list[str]] = {}
    for file in what.files:
        named = os.path.join(what.root, file)
        own = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))  # noqa: PTH119, PTH120
        for path in dict.fromkeys((own, os.path.realpath(named))):
            here = repository.find_repository(os.path.dirname(path)) or Repository(what.root, "", "", (what.root,))  # noqa: PTH120
            if path.startswith(here.top + "/"):
                found.setdefault(here, []).append(path[len(here.top) + 1 :])
    return found
