"""The pages of the bus, below /admin/."""

from __future__ import annotations

from coordination import views
from nexus.core.contributions import Page

PAGES = (
    Page(
        "coordination_agentlimits_changelist",
        title="Limits",
        icon="speed",
        section="Rules",
        words={"limits_list": "the page Limits", "limits_update": "the page Limits"},
        about="What roles and agents may do, and how much.",
        position=3,
    ),
    Page(
        "coordination_event_changelist",
        title="Events",
        icon="list_alt",
        section="Records",
        about="All that happened, as it happens.",
        position=1,
        by_workspace=True,
    ),
    Page(
        "settings",
        "settings/",
        views.settings,
        "Settings",
        "tune",
        "Hub",
        words={"settings_list": "the page Settings", "settings_update": "the page Settings"},
        about="Every setting, and where its value comes from.",
        position=1,
    ),
)
