"""The dashboard's pages, below /admin/."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote, unquote
from django.urls import URLPattern, path, register_converter

from nexus.core.apps import nexus_apps
from nexus.core.contributions import Page
from nexus.dashboard.page import beside, framed
from nexus.dashboard.pages import (
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
    pool,
    pool_new,
    questions,
    search,
    speak,
    tasks,
    timeline,
    topics,
    webhooks,
    worktrees,
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
    Page("bell", "bell/", attention.bell),
    Page("act", "act/", act.act),
    Page("graph", "graph/", graph.graph, "Graph", "hub", "Now", about="Who talks with whom, and how much."),
    Page(
        "board",
        "board/",
        board.board,
        "Handoffs",
        "view_kanban",
        "Now",
        about="Work that exactly one agent takes, by its state.",
    ),
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
    Page(
        "questions",
        "questions/",
        questions.questions,
        "Questions",
        "live_help",
        "Now",
        words={"pool_list_questions": "the page Questions"},
        about="What agents ask you, and what you allowed always.",
    ),
    Page("question", "questions/<str:question_id>/", questions.question),
    Page(
        "timeline",
        "timeline/",
        timeline.timeline,
        "Timeline",
        "view_timeline",
        "Now",
        about="What each agent did when: minutes to a month.",
    ),
    Page("mail", "mail/", mail.mail, "Mail", "inbox", "Now", about="Every message, and where it stands."),
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
        about="Rooms that agents follow, and who has read how far.",
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
    Page(
        "plan",
        "plan/",
        plan.plan,
        "Plan",
        "account_tree",
        "Now",
        about="What a project decides, and the tasks that come of it.",
    ),
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
        about="Who has reserved which files, until when.",
    ),
    Page("reservation", "files/<str:reservation_id>/", files.reservation),
    Page(
        "pool",
        "pool/",
        pool.pool,
        "Pool",
        "groups",
        "Now",
        words={"pool_list_agents": "the page Pool"},
        about="The agents that the hub runs itself: create, send, stop, end.",
    ),
    Page(
        "pool_new",
        "pool/+new/",
        pool_new.new,
        words={"pool_create_agent": "New agent of the pool"},
        runs_program=True,  # for a worktree
    ),
    Page("pool_turn", "pool/+turn/<id:turn_id>/", timeline.turn),
    Page("pool_tail", "pool/<id:pool_agent_id>/tail/", pool.tail),
    Page("pool_cancel", "pool/<id:pool_agent_id>/cancel/", pool.cancel, words={"pool_cancel": "Stop on its page"}),
    Page(
        "pool_compact", "pool/<id:pool_agent_id>/compact/", pool.compact, words={"pool_compact": "Compact on its page"}
    ),
    Page("pool_end", "pool/<id:pool_agent_id>/end/", pool.end, words={"pool_destroy_agent": "End on its page"}),
    Page(
        "pool_worktree",
        "pool/<id:pool_agent_id>/worktree/",
        worktrees.worktree,
        words={"pool_worktree_diff": "the worktree's page"},
        runs_program=True,
    ),
    Page(
        "pool_merge",
        "pool/<id:pool_agent_id>/worktree/merge/",
        worktrees.merge,
        words={"pool_worktree_merge": "Merge on the worktree's page"},
        runs_program=True,
    ),
    Page(
        "pool_keep",
        "pool/<id:pool_agent_id>/worktree/keep/",
        worktrees.keep,
        words={"pool_worktree_keep": "Keep on the worktree's page"},
        runs_program=True,
    ),
    Page(
        "pool_discard",
        "pool/<id:pool_agent_id>/worktree/discard/",
        worktrees.discard,
        words={"pool_worktree_discard": "Discard on the worktree's page"},
        runs_program=True,
    ),
    Page("pool_agent", "pool/<id:pool_agent_id>/", pool.agent, words={"pool_send": "Send on its page"}),
    Page("find", "find/", search.find, "Search", "search", "Now", about="Words anywhere; Ctrl-K on every page."),
    Page("events", "events/", events.events, "Events", "list_alt", "Now", about="All that happened, as it happens."),
    Page(
        "figures",
        "figures/",
        figures.figures,
        "Figures",
        "query_stats",
        "Now",
        words={"figures": "the page Figures"},
        about="How long work and mail wait and take.",
    ),
    Page("event_export", "events/export/", events.export),
    Page("event", "events/<int:event_id>/", events.event),
    Page(
        "agents",
        "agents/",
        agents.agents,
        "Agents and keys",
        "smart_toy",
        "Act",
        about="Who is in the team; its keys, profile and limits.",
    ),
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
        about="How much roles and agents may, and which verbs.",
    ),
    Page("limits_back", "limits/back/", limits.take_back),
    Page("speak", "speak/", speak.speak, "Speak", "campaign", "Act", about="Write to agents, hand work over."),
    Page(
        "webhooks",
        "webhooks/",
        webhooks.webhooks,
        "Webhooks",
        "webhook",
        "Hub",
        words={"allow_private": "“The address may be private”"},
        about="Addresses that are called with events.",
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
        about="Every setting, and where its value comes from.",
    ),
    Page(
        "retention",
        "retention/",
        hub.retention,
        "Retention",
        "auto_delete",
        "Hub",
        about="Delete what is over; empty the database.",
    ),
    Page("reset", "retention/reset/", hub.reset),
    Page("help", "help/", hub.help, "Help", "help", "Hub"),
    Page("about", "about/", hub.about, "About", "info", "Hub", about="The version, and the licence."),
)


def pages(site: AdminSite) -> list[URLPattern]:
    """Every app's pages, behind the admin's own check of who may enter."""
    every = (page for app in nexus_apps() for page in app.pages())
    return [path(page.route, _view(site, page), name=page.name) for page in every]


def _view(site: AdminSite, page: Page) -> Callable[..., Any]:
    view = site.admin_view(framed(page.view))
    return beside(view) if page.runs_program else view
