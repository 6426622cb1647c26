"""One search over everything: for Ctrl-K on every page, and as a page of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass

from django.core.paginator import Paginator
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from coordination.models import Agent, Workspace
from dashboard.forms.filters import SearchFilters
from dashboard.page import render
from dashboard.templatetags.nexus import plain, target
from dashboard.theme import navigation
from handoffs.models import Handoff
from inbox.search import Hit, search
from planning import selectors as planned
from planning.models import Task
from topics.models import Topic
from topics.search import HIT_ENDS, HIT_STARTS
from topics.search import find as find_said

EACH = 6  # of a kind in the palette
PAGE = 50


@dataclass(frozen=True)
class Found:
    """A line of the palette, in the words of the theme's template.

    The description begins with a word of ours: the theme gives its first letter a capital, which no id may get.
    """

    title: str
    description: str
    link: str
    icon: str


def palette(request: HttpRequest) -> HttpResponse:
    """What Ctrl-K shows for `?s=`: pages, agents, workspaces, handoffs, topics, tasks, cycles, messages, events."""
    words = request.GET.get("s", "").replace("\x00", "").strip()[:200]
    if not words:
        return HttpResponse()
    started = time.perf_counter()
    found = [*_pages(words), *_things(words), *_said(words), *_texts(words)]
    paginator = Paginator(found, max(len(found), 1))
    return TemplateResponse(
        request,
        "unfold/helpers/command_results.html",
        {
            "page_obj": paginator,
            "results": paginator.page(1),
            "page_counter": 0,
            "execution_time": time.perf_counter() - started,
            "command_show_history": False,
        },
        headers={"HX-Trigger": "search"},
    )


def find(request: HttpRequest) -> TemplateResponse:
    """The search page: `?q=` over messages and events, older ones after `?before=`."""
    filters = SearchFilters(request.GET)
    words, before = filters.text("q"), filters.number("before")
    hits = search(words, limit=PAGE + 1, before=before)
    older = hits[PAGE - 1].document if len(hits) > PAGE else None
    first = bool(words) and before is None
    return render(
        request,
        "find",
        "Search",
        filters=filters,
        words=words,
        hits=hits[:PAGE],
        older=older,
        things=_things(words) if first else [],
        said=find_said(words, topic_id=None, mode="fts", limit=EACH).hits if first else [],
    )


def _pages(words: str) -> list[Found]:
    entries = [(group["title"], item) for group in navigation() for item in group["items"]]
    return [
        Found(item["title"], f"page, {group.lower()}", str(item["link"]), item["icon"])
        for group, item in entries
        if words.lower() in item["title"].lower()
    ][:EACH]


def _things(words: str) -> list[Found]:
    agents = Agent.objects.filter(Q(agent_id__icontains=words) | Q(role__icontains=words)).order_by("agent_id")[:EACH]
    workspaces = Workspace.objects.filter(
        Q(display_name__icontains=words) | Q(root_realpath__icontains=words) | Q(workspace_id__startswith=words)
    ).order_by("-last_seen_at")[:EACH]
    handoffs = (
        Handoff.objects.filter(
            Q(handoff_id__startswith=words)
            | Q(handoff_id__endswith=words)
            | Q(from_agent_id__icontains=words)
            | Q(claimed_by__icontains=words)
        )
        .defer("payload", "result")
        .order_by("-created_event_id")[:EACH]
    )
    topics = Topic.objects.filter(Q(name__icontains=words) | Q(topic_id=words)).newest_first().defer("metadata")[:EACH]
    tasks = (
        Task.objects.filter(Q(title__icontains=words) | Q(context__icontains=words) | Q(task_key=words), closed_at=None)
        .select_related("workspace")
        .order_by("-task_key")[:EACH]
    )
    cycles = planned.cycles(None, words).reverse().select_related("workspace").defer("document", "words")[:EACH]
    return [
        *(
            Found(
                plain(row.agent_id),
                f"agent, {plain(row.role or 'no role')}",
                reverse("admin:agent", args=[row.agent_id]),
                "smart_toy",
            )
            for row in agents
        ),
        *(
            Found(
                plain(row),
                f"workspace {plain(row.root_realpath)}",
                reverse("admin:coordination_workspace_change", args=[row.pk]),
                "folder_open",
            )
            for row in workspaces
        ),
        *(
            Found(
                row.handoff_id,
                f"handoff, {row.status.lower()}, for {plain(target(row.target))}",
                reverse("admin:handoff", args=[row.pk]),
                "swap_horiz",
            )
            for row in handoffs
        ),
        *(
            Found(
                plain(row.name),
                f"topic, {row.status}, {row.last_seq} messages",
                reverse("admin:topic", args=[row.pk]),
                "forum",
            )
            for row in topics
        ),
        *(
            Found(
                f"{row.number}. {plain(row.title)}"[:100],
                f"task, {row.status.replace('_', ' ')}, in {plain(row.workspace)}",
                reverse("admin:task", args=[row.pk]),
                "task_alt",
            )
            for row in tasks
        ),
        *(
            Found(
                plain(row.topic or row.completed_at)[:100],
                f"cycle of {row.task_count} tasks, closed, in {plain(row.workspace)}",
                reverse("admin:plan_cycle", args=[row.pk]),
                "account_tree",
            )
            for row in cycles
        ),
    ]


def _said(words: str) -> list[Found]:
    marks = {ord(HIT_STARTS): None, ord(HIT_ENDS): None}
    return [
        Found(
            f"#{hit.message.seq} in {plain(hit.message.topic.name)}"[:100],
            f"said by {plain(hit.message.sender)}: {plain(hit.snippet.translate(marks))}",
            reverse("admin:topic_message", args=[hit.message.message_id]),
            "forum",
        )
        for hit in find_said(words, topic_id=None, mode="fts", limit=EACH).hits
    ]


def _texts(words: str) -> list[Found]:
    hits = search(words, limit=2 * EACH)
    return [Found(plain(hit.title)[:100], f"{hit.kind}, {plain(hit.excerpt)}", *_place(hit)) for hit in hits]


def _place(hit: Hit) -> tuple[str, str]:
    """Where a hit leads, and its icon."""
    if hit.kind == "message":
        return f"{reverse('admin:mail')}?m={hit.identifier}", "mail"
    return reverse("admin:event", args=[hit.document]), "history"
