"""The theme's settings: names, colours, and the sidebar with links to every page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse

from nexus.core.apps import nexus_apps
from nexus.core.contributions import Page


def _entry(title: str, icon: str, view: str, in_use: Callable[[], bool] = lambda: True) -> dict[str, Any]:
    entry = {"title": title, "icon": icon, "link": reverse(f"admin:{view}")}
    return {**entry, "permission": lambda request: in_use()}


SECTIONS = ("Now", "Work", "Pool", "Rules", "Records", "Hub")  # all but the first fold
RECORDS = (
    ("Workspaces", "folder_open", "coordination_workspace_changelist"),
    ("Sessions", "sensors", "coordination_session_changelist"),
    ("Artifacts", "deployed_code", "coordination_artifact_changelist"),
    ("Tasks", "task_alt", "planning_task_changelist"),
    ("Cycles", "cycle", "planning_cycle_changelist"),
    ("Deliveries", "mark_email_read", "inbox_delivery_changelist"),
    ("All handoffs", "swap_horiz", "handoffs_handoff_changelist"),
)


def listed_pages() -> list[Page]:
    """Return the pages that have an entry in the sidebar, in its order."""
    titled = (page for app in nexus_apps() for page in app.pages() if page.title)
    return sorted(titled, key=lambda page: (SECTIONS.index(page.section), page.position))


def navigation(request: HttpRequest | None = None) -> list[dict[str, Any]]:
    """Return the sidebar: the apps' pages by section, and the records; for a request with how many wait."""
    sections: dict[str, list[dict[str, Any]]] = {name: [] for name in SECTIONS}
    sections["Now"].append(_entry("Home", "monitoring", "index"))
    sections["Records"] += [_entry(*record) for record in RECORDS]
    for page in listed_pages():
        entry = _entry(page.title, page.icon, page.name, page.in_use)
        sections[page.section].append({**entry, "badge": page.waits() if request and page.waits else 0})
    operators = _entry("Operators", "badge", "auth_user_changelist")
    sections["Hub"].insert(1, operators)
    now, *rest = sections.items()
    folding = [{"title": title, "items": items, "collapsible": True} for title, items in rest]
    return [{"title": "", "items": now[1]}, *folding]


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Nexus",
    "SITE_HEADER": "Nexus",
    "SITE_SUBHEADER": "Agents at work",
    "SITE_SYMBOL": "hub",
    "SITE_URL": None,  # "/" is the dashboard itself, and another site's where the hub is below a path
    "SHOW_HISTORY": False,  # the event log is the history
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("nexus/icon.svg")}],
    "STYLES": [lambda request: static("nexus/nexus.css")],
    "COLORS": {
        "primary": {
            "50": "oklch(98.4% .014 180.72)",
            "100": "oklch(95.3% .051 180.801)",
            "200": "oklch(91% .096 180.426)",
            "300": "oklch(85.5% .138 181.071)",
            "400": "oklch(77.7% .152 181.912)",
            "500": "oklch(70.4% .14 182.503)",
            "600": "oklch(51.1% .096 186.391)",
            "700": "oklch(43.7% .078 188.216)",
            "800": "oklch(38.6% .063 188.416)",
            "900": "oklch(32% .05 188)",
            "950": "oklch(27.7% .046 192.524)",
        },
        "font": {
            "subtle-light": "var(--color-base-600)",
            "subtle-dark": "var(--color-base-400)",
            "default-light": "var(--color-base-700)",
            "default-dark": "var(--color-base-300)",
            "important-light": "var(--color-base-900)",
            "important-dark": "var(--color-base-100)",
        },
    },
    "SIDEBAR": {"show_search": True, "command_search": True, "navigation": navigation},
}
