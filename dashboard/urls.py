"""The dashboard's pages, below /admin/."""

from __future__ import annotations

import re

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote, unquote
from django.urls import URLPattern, path, register_converter

from core.apps import nexus_apps
from core.contributions import Page
from dashboard.page import framed
from dashboard.pages import (
    act,
    agents,
    attention,
    board,
    cycles,
    events,
    figures,
    files,
    graph,
    hub,
    limits,
    mail,
    plan,
    search,
    speak,
    tasks,
    timeline,
    topics,
    webhooks,
)


class AnyId:
    """An id in a path: any text, in the admin's own quoting where it needs any, and no way up (`..`)."""

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


register_converter(AnyId, "id")


PAGES = (
    Page("attention", "attention/", attention.attention),
    Page("act", "act/", act.act),
    Page("graph", "graph/", graph.graph, "Graph", "hub", "Now"),
    Page("board", "board/", board.board, "Handoffs", "view_kanban", "Now"),
    Page("handoff", "board/<str:handoff_id>/", board.handoff),
    Page(
        "handoff_cancel",
        "board/<str:handoff_id>/cancel/",
        board.cancel,
        words={
            "handoff_withdraw": "Cancel on the handoff's page",
            "handoff_cancel": "Cancel on the handoff's page",
            "handoff_get": "the handoff's page",
            "handoff_list_available": "the page Handoffs",
        },
    ),
    Page("timeline", "timeline/", timeline.timeline, "Timeline", "view_timeline", "Now"),
    Page("mail", "mail/", mail.mail, "Mail", "inbox", "Now"),
    Page("message", "mail/<str:message_id>/", mail.message),
    Page("mark_read", "mail/<str:message_id>/read/", speak.mark_read),
    Page(
        "topics",
        "topics/",
        topics.topics,
        "Topics",
        "forum",
        "Now",
        words={"topic_list": "the page Topics"},
    ),
    Page("topic_new", "topics/+new/", topics.new, words={"topic_create": "New topic"}),
    Page("topic_message", "topics/+message/<id:message_id>/", topics.message),
    Page("topic_message_delete", "topics/+message/<id:message_id>/delete/", topics.delete_message),
    Page("topic", "topics/<id:topic_id>/", topics.topic),
    Page("topic_tail", "topics/<id:topic_id>/tail/", topics.tail),
    Page("topic_join", "topics/<id:topic_id>/join/", topics.join, words={"topic_join": "Join on the topic's page"}),
    Page("topic_close", "topics/<id:topic_id>/close/", topics.close),
    Page("topic_rename", "topics/<id:topic_id>/rename/", topics.rename),
    Page("topic_export", "topics/<id:topic_id>/export/", topics.export),
    Page("topic_delete", "topics/<id:topic_id>/delete/", topics.delete),
    Page("plan", "plan/", plan.plan, "Plan", "account_tree", "Now"),
    Page("plan_history", "plan/history/", cycles.history, words={"history_search": "the page History of plans"}),
    Page("plan_cycle", "plan/cycles/<int:cycle_id>/", cycles.cycle),
    Page("plan_issue", "plan/issues/<int:issue_id>/", plan.issue),
    Page("plan_issue_change", "plan/issues/<int:issue_id>/change/", plan.change_issue),
    Page("task", "plan/tasks/<id:task_key>/", tasks.task),
    Page("task_status", "plan/tasks/<id:task_key>/status/", tasks.change_status),
    Page("plan_start", "plan/<id:workspace_id>/start/", plan.start, words={"plan_start": "New plan"}),
    Page("plan_close", "plan/<id:workspace_id>/close/", plan.close, words={"task_close": "Close the cycle"}),
    Page("plan_issue_new", "plan/<id:workspace_id>/issue/", plan.add_issue),
    Page("task_new", "plan/<id:workspace_id>/task/", tasks.new, words={"task_add": "New task"}),
    Page(
        "files",
        "files/",
        files.files,
        "Files",
        "edit_document",
        "Now",
        words={"files_list": "the page Files", "files_who": "the page Files", "files_end": "End it on its page"},
    ),
    Page("reservation", "files/<str:reservation_id>/", files.reservation),
    Page("find", "find/", search.find, "Search", "search", "Now"),
    Page("events", "events/", events.events, "Events", "list_alt", "Now"),
    Page(
        "figures", "figures/", figures.figures, "Figures", "query_stats", "Now", words={"figures": "the page Figures"}
    ),
    Page("event_export", "events/export/", events.export),
    Page("event", "events/<int:event_id>/", events.event),
    Page("agents", "agents/", agents.agents, "Agents and keys", "smart_toy", "Act"),
    Page("agent_new", "agents/+new/", agents.new, words={"agent_create": "New agent", "agent_register": "New agent"}),
    Page(
        "agent_key",
        "agents/<id:agent_id>/key/",
        agents.key,
        words={"agent_key_issue": "Issue a key there", "agent_key_set_active": "Activate on the agent's page"},
    ),
    Page("agent_limits", "agents/<id:agent_id>/limits/", agents.limit),
    Page("agent_delete", "agents/<id:agent_id>/delete/", agents.delete),
    Page("agent_close_session", "agents/<id:agent_id>/close/", agents.close_session),
    Page("agent_mail", "agents/<id:agent_id>/mail/", mail.agent_mail),
    Page("agent_try", "agents/<id:agent_id>/try/", agents.try_it),
    Page(
        "agent",
        "agents/<id:agent_id>/",
        agents.agent,
        words={"agent_update": "Profile on the agent's page", "agent_get": "the agent's page"},
    ),
    Page(
        "limits",
        "limits/",
        limits.limits,
        "Limits",
        "speed",
        "Act",
        words={"limits_list": "the page Limits", "limits_update": "the page Limits"},
    ),
    Page("limits_back", "limits/back/", limits.take_back),
    Page("speak", "speak/", speak.speak, "Speak", "campaign", "Act"),
    Page(
        "webhooks",
        "webhooks/",
        webhooks.webhooks,
        "Webhooks",
        "webhook",
        "Hub",
        words={"allow_private": "“The address may be private”"},
    ),
    Page("webhook", "webhooks/<str:webhook_id>/", webhooks.webhook),
    Page(
        "settings",
        "settings/",
        hub.settings,
        "Settings",
        "tune",
        "Hub",
        words={"settings_list": "the page Settings", "settings_update": "the page Settings"},
    ),
    Page("retention", "retention/", hub.retention, "Retention", "auto_delete", "Hub"),
    Page("reset", "retention/reset/", hub.reset),
    Page("help", "help/", hub.help, "Help", "help", "Hub"),
    Page("about", "about/", hub.about, "About", "info", "Hub"),
)


def pages(site: AdminSite) -> list[URLPattern]:
    """Every app's pages, behind the admin's own check of who may enter."""
    every = (page for app in nexus_apps() for page in app.pages())
    return [path(page.route, site.admin_view(framed(page.view)), name=page.name) for page in every]
