"""The page of connected forges, below /admin/."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.forges import views

PAGES = (
    Page(
        "forges",
        "forges/",
        views.forges,
        "Forges",
        "merge",
        "Hub",
        about="Repositories on GitHub and GitLab whose issues agents work on, and git remotes for their work.",
        position=3,
    ),
)
