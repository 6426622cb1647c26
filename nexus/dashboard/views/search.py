"""One search over everything: for Ctrl-K on every page, and as a page of its own."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, TypeVar

from django.core.paginator import Paginator
from django.db.models import F, Model, Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from coordination.log.sentences import lines
from coordination.models import Agent, Artifact, Workspace
from coordination.routing import describe
from handoffs.models import Handoff
from handoffs.selectors import containing
from inbox.search import Hit, around, search
from nexus.control.agents import monitoring
from nexus.control.models import Entry, PoolAgent, Question, Turn
from nexus.core.clock import now
from nexus.core.fulltext import HIT_ENDS, HIT_STARTS, words_of
from nexus.dashboard.forms import SearchFilters
from nexus.planning.models import Cycle, Issue, Task
from nexus.reservations import selectors as reserved
from nexus.reservations.models import Reservation
from nexus.topics.models import Topic
from nexus.topics.search import find_messages as find_said
from nexus.web.forms import searched
from nexus.web.page import render
from nexus.web.templatetags.nexus import plain
from nexus.web.theme import navigation

EACH = 6  # results of a kind
LOOKED = 60  # messages and events that are examined to find so many
READ = 2_000  # rows of a kind without a search index that are compared with the words
BEGINNING = 4_000  # characters of an entry of a transcript
M = TypeVar("M", bound=Model)
UNMARKED = {ord(HIT_STARTS): None, ord(HIT_ENDS): None}


@dataclass(frozen=True)
class Match:
    """A line of the palette, with the names that the theme's template uses.

    The description begins with a word of ours: the theme capitalizes its first letter, which must not happen to an id.
    """

    title: str
    description: str
    link: str
    icon: str
    excerpt: str = ""  # of its text
    moment: datetime | None = None


@dataclass(frozen=True)
class ResultGroup:
    """The results of a kind, and the page that has more of them, if there are more."""

    title: str
    found: Sequence[Match]
    more: str = ""


def palette(request: HttpRequest) -> HttpResponse:
    """Show the results of Ctrl-K for `?s=`: pages, and a few of every kind of thing."""
    words = searched(request.GET.get("s", ""))
    if not words:
        return HttpResponse()
    started = time.perf_counter()
    found = [*_pages(words), *(each for group in _groups(words) for each in group.found)]
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


def search_page(request: HttpRequest) -> TemplateResponse:
    """Show the search page: what contains the words of `?q=`, a few of every kind, with links to more."""
    filters = SearchFilters(request.GET)
    words = filters.text("q")
    groups = list(_groups(words)) if words else []
    return render(request, "dashboard/find.html", "Search", filters=filters, words=words, groups=groups, read=READ)


def _pages(words: str) -> list[Match]:
    entries = [(group["title"], item) for group in navigation() for item in group["items"]]
    return [
        Match(item["title"], f"page, {group.lower()}", str(item["link"]), item["icon"])
        for group, item in entries
        if words.lower() in item["title"].lower()
    ][:EACH]


def _groups(words: str) -> Iterator[ResultGroup]:
    """Yield the results by kind, without empty kinds."""
    hits = search(words, limit=LOOKED)
    groups = (
        _group("Agents", _agents(words), "coordination_agent_changelist", q=words),
        _group("Agents of the pool", _pool(words), "control_poolagent_changelist", q=words),
        _group("Runs", _runs(words), "control_turn_changelist"),
        _group("Workspaces", _workspaces(words), "coordination_workspace_changelist", q=words),
        _group("Handoffs", _handoffs(words), "handoffs_handoff_changelist", q=words),
        _group("Files", _files(words), "files_reservation_changelist", q=words),
        _group("Topics", _topics(words), "topics_topic_changelist", q=words),
        _group("Said in topics", _topic_messages(words), "topics_topic_changelist", q=words),
        _group("Questions", _questions(words), "control_question_changelist", q=words),
        _group("Issues", _issues(words), "plan"),
        _group("Tasks", _tasks(words), "planning_task_changelist", q=words),
        _group("Closed cycles", _cycles(words), "planning_cycle_changelist", q=words),
        _group("Artifacts", _artifacts(words), "coordination_artifact_changelist", q=words),
        _group("Messages", _messages(hits), "inbox_message_changelist", q=words),
        _group("Events", _events(hits), "coordination_event_changelist", q=words, alive="on"),
    )
    return (group for group in groups if group.found)


def _group(title: str, rows: Iterable[Match], page: str, **query: str) -> ResultGroup:
    found = list(islice(rows, EACH + 1))
    more = f"{reverse(f'admin:{page}')}?{urlencode(query)}" if len(found) > EACH else ""
    return ResultGroup(title, found[:EACH], more)


def _newest(rows: QuerySet[M], by: str = "pk") -> QuerySet[M]:
    """Return the READ newest rows, newest first; `by` is an indexed field that rises with time."""
    rows = rows.order_by(f"-{by}")
    # A range on the indexed field, because with a subquery's keys a database may still read every row.
    oldest = rows.values_list(by, flat=True)[READ - 1 : READ].first()
    return rows if oldest is None else rows.filter(**{f"{by}__gte": oldest})


def _agents(words: str) -> Iterator[Match]:
    named = Agent.objects.filter(pk=words)
    rows = _newest(Agent.objects.exclude(pk=words), "created_at")
    containing = rows.filter(Q(agent_id__icontains=words) | Q(role__icontains=words))
    for row in [*named, *containing[: EACH + 1]]:
        description = f"agent, {plain(row.role or 'no role')}"
        yield Match(plain(row.agent_id), description, _at("agent", row.agent_id), "smart_toy")


def _pool(words: str) -> Iterator[Match]:
    containing = monitoring.matching(_newest(PoolAgent.objects.all()), words)
    for row in containing.order_by(F("ended_at").desc(nulls_first=True), "-pk")[: EACH + 1]:
        state = "ended" if row.ended_at else "in the pool"
        description = f"{state}, {row.preset}, runner {plain(row.runner)}"
        yield Match(plain(row.agent_id), description, _at("pool_agent", row.pk), "groups", moment=row.created_at)


def _runs(words: str) -> Iterator[Match]:
    """Search runs by what was asked and answered, and by the beginning of each entry of the transcripts."""
    said = _newest(Entry.objects.exclude(turn=None)).annotate(start=Left("content", BEGINNING))
    named = Q(content__icontains=words) | Q(answer__icontains=words) | Q(why__icontains=words)
    newest = _newest(Turn.objects.all())
    rows = Turn.objects.filter(
        Q(pk__in=newest.filter(named).order_by().values("pk"))
        | Q(pk__in=said.filter(start__icontains=words).order_by().values("turn"))
    )
    for row in rows.select_related("agent").order_by("-pk")[: EACH + 1]:
        held = next((text for text in (row.content, row.answer) if text and words.lower() in text.lower()), "")
        description, link = f"run of {plain(row.agent.agent_id)}, {row.outcome}", _at("control_turn_change", row.pk)
        title = plain(row.content.strip().partition("\n")[0])[:100] or plain(row.pk)
        yield Match(title, description, link, "play_circle", _excerpt(held, words), row.queued_at)


def _workspaces(words: str) -> Iterator[Match]:
    named = Q(display_name__icontains=words) | Q(root_realpath__icontains=words) | Q(workspace_id__startswith=words)
    for row in _newest(Workspace.objects.all(), "created_at").filter(named)[: EACH + 1]:
        link = _at("coordination_workspace_change", row.pk)
        yield Match(plain(row), f"workspace {plain(row.root_realpath)}", link, "folder_open")


def _handoffs(words: str) -> Iterator[Match]:
    """Search handoffs by title, id or agent, and by payload and result."""
    named = Q(title__icontains=words) | Q(handoff_id__startswith=words) | Q(handoff_id__endswith=words)
    about = Q(from_agent_id__icontains=words) | Q(claimed_by__icontains=words)
    newest = _newest(Handoff.objects.all(), "created_event_id").filter(named | about)
    documents = {*newest.values_list("created_event_id", flat=True)[: EACH + 1], *containing(words, EACH + 1)}
    rows = Handoff.objects.filter(created_event_id__in=documents).order_by("-created_event_id")
    lower = [word.lower() for word in words_of(words)]
    for row in rows[: EACH + 1]:
        description = (
            f"handoff, {row.get_status_display().lower()}, for {plain(describe(row.target))}, {row.handoff_id}"
        )
        held = next((text for text in (row.payload, row.result) if _holds(text, lower)), None)
        excerpt = plain(_prose(around(held, lower))) if held else ""
        page = _at("handoffs_handoff_change", row.pk)
        yield Match(plain(row.title), description, page, "swap_horiz", excerpt, row.created_at)


def _prose(text: str) -> str:
    """Return a piece of JSON as plain text, without its punctuation."""
    return re.sub(" (?=[,:])", "", " ".join(re.sub(r'[{}\[\]"]', " ", text).split()))


def _holds(text: str | None, lower: Sequence[str]) -> bool:
    return text is not None and any(word in text.lower() for word in lower)


def _files(words: str) -> Iterator[Match]:
    named = Q(pattern__icontains=words) | Q(reason__icontains=words) | Q(agent_id__icontains=words)
    newest = _newest(Reservation.objects.all()).select_related("workspace")
    for row in (newest & reserved.held(now())).filter(named)[: EACH + 1]:
        description = f"reserved by {plain(row.agent_id)}, in {plain(row.workspace)}"
        link, reason = _at("files_reservation_change", row.pk), plain(row.reason)
        yield Match(plain(row.pattern)[:100], description, link, "edit_document", reason, row.created_at)


def _topics(words: str) -> Iterator[Match]:
    named = Q(name__icontains=words) | Q(topic_id=words)
    rows = _newest(Topic.objects.all(), "created_at").filter(named).defer("metadata")
    for row in rows[: EACH + 1]:
        description = f"topic, {row.status}, {row.last_seq} messages"
        yield Match(plain(row.name), description, _at("topic", row.pk), "forum")


def _topic_messages(words: str) -> Iterator[Match]:
    for hit in find_said(words, topic_id=None, mode="fts", limit=EACH + 1).hits:
        message = hit.message
        yield Match(
            f"#{message.seq} in {plain(message.topic.name)}"[:100],
            f"said by {plain(message.sender)}",
            _at("topic_message", message.message_id),
            "forum",
            excerpt=plain(hit.snippet.translate(UNMARKED)),
            moment=message.created_at,
        )


def _questions(words: str) -> Iterator[Match]:
    """Search agents' questions by their text and their answers."""
    named = Q(title__icontains=words) | Q(detail__icontains=words) | Q(words__icontains=words)
    rows = _newest(Question.objects.all()).filter(named | Q(agent_id__icontains=words))
    for row in rows[: EACH + 1]:
        description, link = f"question of {plain(row.agent_id)}, {row.status}", _at("question", row.pk)
        excerpt = _excerpt(row.detail, words)
        yield Match(plain(row.title)[:100], description, link, "contact_support", excerpt, row.asked_at)


def _issues(words: str) -> Iterator[Match]:
    named = Q(title__icontains=words) | Q(decision__icontains=words)
    for row in _newest(Issue.objects.all()).filter(named).select_related("plan__workspace")[: EACH + 1]:
        description = f"issue, {row.status}, in {plain(row.plan.workspace)}"
        excerpt, link = _excerpt(row.decision or "", words), _at("plan_issue", row.pk)
        yield Match(f"{row.number}. {plain(row.title)}"[:100], description, link, "rule", excerpt, row.decided_at)


def _excerpt(text: str, words: str) -> str:
    return plain(around(text, [word.lower() for word in words_of(words)]))


def _tasks(words: str) -> Iterator[Match]:
    named = Q(title__icontains=words) | Q(context__icontains=words) | Q(task_key=words)
    rows = _newest(Task.objects.all()).filter(named, closed_at=None).select_related("workspace")
    for row in rows[: EACH + 1]:
        description = f"task, {row.status.replace('_', ' ')}, in {plain(row.workspace)}"
        yield Match(
            f"{row.number}. {plain(row.title)}"[:100], description, _at("planning_task_change", row.pk), "task_alt"
        )


def _cycles(words: str) -> Iterator[Match]:
    cycles = _newest(Cycle.objects.in_history()).filter(words__contains=words.lower())
    rows = cycles.select_related("workspace").defer("document", "words")
    for row in rows[: EACH + 1]:
        description = f"cycle of {row.task_count} tasks, closed, in {plain(row.workspace)}"
        yield Match(
            plain(row.topic or row.completed_at)[:100],
            description,
            _at("planning_cycle_change", row.pk),
            "account_tree",
        )


def _artifacts(words: str) -> Iterator[Match]:
    named = Q(name__icontains=words) | Q(path__icontains=words) | Q(artifact_id=words)
    rows = _newest(Artifact.objects.all()).filter(named).select_related("workspace").defer("content")
    for row in rows[: EACH + 1]:
        description = f"artifact, {row.artifact_type}, in {plain(row.workspace)}"
        link = _at("coordination_artifact_change", row.pk)
        yield Match(plain(row)[:100], description, link, "deployed_code", moment=row.created_at)


def _messages(hits: Iterable[Hit]) -> Iterator[Match]:
    for hit in hits:
        if hit.event is None:
            link = _at("inbox_message_change", hit.identifier)
            yield Match(plain(hit.title)[:100], "message", link, "mail", plain(hit.excerpt), hit.created_at)


def _events(hits: Iterable[Hit]) -> Iterator[Match]:
    """Return events as results, by their sentences."""
    for line in lines([hit.event for hit in hits if hit.event is not None][: EACH + 1]):
        text = plain("".join(part.text for part in line.parts))
        event = line.event
        page = _at("coordination_event_change", event.pk)
        yield Match(text[:200], f"event, {plain(event.type)}", page, "history", "", event.created_at)


def _at(page: str, *arguments: Any) -> str:
    return reverse(f"admin:{page}", args=arguments)
