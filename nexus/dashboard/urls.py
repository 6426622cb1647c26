"""The dashboard's pages, below /admin/."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote, unquote
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, register_converter, reverse
from django.views.generic import RedirectView

from handoffs import selectors
from nexus.core.apps import nexus_apps
from nexus.core.contributions import Page
from nexus.dashboard import admin
from nexus.dashboard.views import actions, board, graph, home, search, timeline
from nexus.web.page import beside


class AnyId:
    """An id in a path: any text, in the admin's own quoting if needed, except `..`."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        found = value.replace("_2E", ".") if re.fullmatch("(_2E)+", value) else str(unquote(value))
        if "\x00" in found:
            raise ValueError("no id holds a NUL")
        return found

    def to_url(self, value: str) -> str:
        if re.fullmatch(r"[\w-]+", value, re.ASCII) and self.to_python(value) == value:
            return value
        return value.replace(".", "_2E") if not value.strip(".") else str(quote(value))


class RowId(AnyId):
    """An id in a path where the admin's own list has the name of its model."""

    regex = "(?!(?:reservation|topic)/)[^/]+"


register_converter(AnyId, "id")
register_converter(RowId, "row")


PAGES = (
    Page("attention", "attention/", home.attention, by_workspace=True),
    Page("bell", "bell/", home.bell),
    Page("act", "act/", actions.act),
    Page("act_minutes", "act/minutes/", actions.act, takes_minutes=True),
    Page(
        "graph",
        "graph/",
        graph.graph,
        "Graph",
        "hub",
        "Work",
        about="Who talks with whom, and how much.",
        position=5,
        by_workspace=True,
    ),
    Page(
        "board",
        "board/",
        board.board,
        "Handoffs",
        "view_kanban",
        "Now",
        about="Work that exactly one agent takes, by its state.",
        waits=selectors.count_for_operator,
        position=2,
        by_workspace=True,
        words={
            "handoff_withdraw": "Cancel on the handoff's page",
            "handoff_cancel": "Cancel on the handoff's page",
            "handoff_get": "the handoff's page",
            "handoff_list_available": "the page Handoffs",
        },
    ),
    Page(
        "timeline",
        "timeline/",
        timeline.timeline,
        "Timeline",
        "view_timeline",
        "Now",
        about="What each agent did when: minutes to a month.",
        position=6,
        by_workspace=True,
    ),
    Page("pool_turn", "pool/+turn/<id:turn_id>/", timeline.turn),
    Page(
        "find",
        "find/",
        search.search_page,
        "Search",
        "search",
        "Work",
        about="Words anywhere; Ctrl-K on every page.",
        position=6,
    ),
    Page(
        "coordination_agent_changelist",
        title="Agents",
        icon="smart_toy",
        section="Now",
        words={"agent_create": "Add on the page Agents", "agent_register": "Add on the page Agents"},
        about="Who is in the team; its keys, profile and limits.",
        position=1,
        by_workspace=True,
    ),
    Page(
        "agent",
        "agents/<id:agent_id>/",
        admin.agent,
        words={
            "agent_get": "the agent's page",
            "agent_update": "Profile on the agent's page",
            "agent_key_issue": "Issue a key on the agent's page",
            "agent_key_set_active": "Activate on the agent's page",
        },
    ),
    Page(
        "speak",
        "speak/",
        actions.speak,
        "Compose",
        "campaign",
        "Work",
        about="Write to agents, hand work over.",
        position=1,
    ),
    Page("help", "help/", home.help, "Help", "help", "Hub", position=8),
)


# The addresses of pages that became lists and records of the admin, until the next release.
MOVED = {
    "about/": "help",
    "plan/cycles/<int:object_id>/": "planning_cycle_change",
    "plan/tasks/<id:object_id>/": "planning_task_change",
    "mail/<str:object_id>/": "inbox_message_change",
    "events/": "coordination_event_changelist",
    "events/<int:object_id>/": "coordination_event_change",
    "board/<str:object_id>/": "handoffs_handoff_change",
    "agents/": "coordination_agent_changelist",
    "agents/+new/": "coordination_agent_add",
    "pool/": "control_poolagent_changelist",
    "pool/+new/": "control_poolagent_add",
    "webhooks/": "hooks_webhook_changelist",
    "webhooks/<str:object_id>/": "hooks_webhook_change",
    "notices/": "hooks_noticeaddress_changelist",
    "notices/<str:object_id>/": "hooks_noticeaddress_change",
    "forges/": "forges_forge_changelist",
    "limits/": "coordination_agentlimits_changelist",
    "topics/": "topics_topic_changelist",
    "topics/+new/": "topics_topic_add",
    "files/": "files_reservation_changelist",
    "files/<row:object_id>/": "files_reservation_change",
    "lane/": "control_worktreemerge_changelist",
    "budgets/": "control_budget_changelist",
    "permissions/": "control_permissionrule_changelist",
    "machines/": "control_machine_changelist",
    "questions/": "control_question_changelist",
    "runs/": "control_turn_changelist",
    "runs/<id:object_id>/": "control_turn_change",
}


def pages(site: AdminSite) -> list[URLPattern]:
    """Return the URLs of every app's pages, behind the admin's check of permissions."""
    every = (page for app in nexus_apps() for page in app.pages())
    return [path(page.route, _view(site, page, page.view), name=page.name) for page in every if page.view]


def moved() -> list[URLPattern]:
    """Return the old addresses, which lead to the new ones."""
    redirects = {
        route: RedirectView.as_view(pattern_name=f"admin:{name}", query_string=True) for route, name in MOVED.items()
    }
    return [path("mail/", _moved_mail), *(path(route, view) for route, view in redirects.items())]


def _moved_mail(request: HttpRequest) -> HttpResponse:
    """Redirect to the inbox, or to the message that was open there."""
    if message_id := request.GET.get("m"):
        return redirect("admin:inbox_message_change", message_id)
    return redirect(f"{reverse('admin:inbox_message_changelist')}?{request.GET.urlencode()}")


def _view(site: AdminSite, page: Page, view: Callable[..., Any]) -> Callable[..., Any]:
    guarded = site.admin_view(view)
    return beside(guarded) if page.takes_minutes else guarded
