"""The page of checks, below /admin/."""

from __future__ import annotations

from handoffs import views
from nexus.core.contributions import Page

PAGES = (
    Page(
        "checks",
        "checks/",
        views.checks,
        "Checks",
        "rule_settings",
        "Rules",
        words={"checks_list": "the page Checks", "checks_approve": "Approve on the page Checks"},
        about="The commands by which Nexus tests results and merges; approve them.",
        position=4,
        takes_minutes=True,
        by_workspace=True,
    ),
)
