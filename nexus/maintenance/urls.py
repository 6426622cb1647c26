"""The pages of maintenance, below /admin/."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.maintenance import views

PAGES = (
    Page(
        "retention",
        "retention/",
        views.retention,
        "Retention",
        "auto_delete",
        "Hub",
        about="Delete what is over; empty the database.",
        position=6,
    ),
    Page("reset", "retention/reset/", views.reset),
)
