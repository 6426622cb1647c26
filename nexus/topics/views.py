"""The page of a topic: its messages, and what an operator does there."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.template.response import TemplateResponse
from django.urls import reverse

from nexus.core.clock import now
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.topics import archive, search, selectors
from nexus.topics.forms import SayForm, TopicFilters
from nexus.topics.models import Topic, TopicMessage
from nexus.topics.toolset import TOPICS
from nexus.web.page import operate, render, streamed
from nexus.web.templatetags.nexus import plain

NEWEST = 20  # messages at first: more than a window shows, and cheap to render
PAGE, FOUND = 50, 50
NOTHING = selectors.TopicPage([], earlier=False, later=False)


def topic(request: HttpRequest, topic_id: str) -> HttpResponse:
    """Show a topic: the newest messages, those around `?at=` or before `?before=`, or what `?q=` finds; POST sends a
    message.

    `?answer=` is the number of the message that the form answers, `?whole=` the number of the one that is shown whole.
    """
    filters = TopicFilters(request.GET)
    if request.method != "POST":
        return _topic(request, topic_id, filters)
    form = SayForm(request.POST)
    if form.is_valid():
        about = {"message": form.message(), "seen": form.cleaned_data["seen"] or 0}
        envelope = operate(TOPICS, request, "topic_post", "", form, topic_id=topic_id, **about)
        if envelope["ok"]:
            for warning in envelope["data"].get("warnings", []):
                messages.warning(request, warning["message"])
            return redirect(f"{reverse('admin:topic', args=[topic_id])}#m-{envelope['data']['message']['seq']}")
    return _topic(request, topic_id, filters, say=form)


def _topic(request: HttpRequest, topic_id: str, filters: TopicFilters, say: SayForm | None = None) -> HttpResponse:
    row = get_object_or_404(Topic, pk=topic_id)
    words, at, before = filters.text("q"), filters.number("at"), filters.number("before")
    limit = NEWEST if at is None and before is None else PAGE
    stream = NOTHING if words else selectors.stream(row, at=at, before=before, limit=limit)
    readers = selectors.readers([row], now())[topic_id]
    answered = _numbered(topic_id, filters.number("answer"))
    upto = stream.messages[-1].seq if stream.messages else 0
    say = say or SayForm(
        initial={
            "seen": upto,
            **({"reply_to": answered.message_id, "message_type": "answer"} if answered else {}),
        }
    )
    if say.is_bound:
        answered = TopicMessage.objects.filter(topic=row, message_id=say.data.get("reply_to", "")).first()
    return render(
        request,
        "topics/topic.html",
        f"Topic {plain(row.name)}",
        topic=row,
        filters=filters,
        words=words,
        hits=_search(words, topic_id) if words else [],
        stream=stream,
        upto=upto,
        onward=upto + 1 + selectors.CONTEXT,
        tailing=not stream.later and not words,
        **_stream_context(row, stream.messages, filters.number("whole")),
        readers=readers,
        own=next((each.peer for each in readers if each.peer.agent_id == OPERATOR_AGENT), None),
        answered=answered,
        say=say,
    )


def _stream_context(topic: Topic, shown: list[TopicMessage], whole: int | None = None) -> dict[str, Any]:
    """Return the context of the rows of a stream."""
    exchanges = selectors.exchanges(topic.topic_id, shown)
    return {
        "said": [(message, exchanges[message.message_id]) for message in shown],
        "shown": {message.seq for message in shown},
        "whole": whole,
        "excerpt": selectors.EXCERPT,
        "address": reverse("admin:topic", args=[topic.pk]),  # each row has several links to it
    }


def tail(request: HttpRequest, topic_id: str) -> TemplateResponse:
    """Return the messages after `?after=` for the live page, at most one page of them; the page then asks again."""
    row = get_object_or_404(Topic, pk=topic_id)
    after = TopicFilters(request.GET).number("after") or 0
    rows = selectors.newer(topic_id, after=after, limit=PAGE + 1)
    shown = rows[:PAGE]
    context = {"upto": shown[-1].seq if shown else after, "more": len(rows) > PAGE, "topic": row}
    return TemplateResponse(request, "topics/topic_rows.html", {**context, **_stream_context(row, shown)})


def message(request: HttpRequest, message_id: str) -> HttpResponse:
    """Redirect to a message in its topic."""
    row = get_object_or_404(TopicMessage.objects.select_related("topic"), message_id=message_id)
    return redirect(f"{reverse('admin:topic', args=[row.topic_id])}?at={row.seq}#m-{row.seq}")


def export(request: HttpRequest, topic_id: str) -> StreamingHttpResponse:
    """Return a topic as a file: Markdown or (`?format=json`) JSON."""
    row = get_object_or_404(Topic, pk=topic_id)
    as_json = TopicFilters(request.GET).text("format") == "json"
    pieces = (archive.to_json if as_json else archive.to_markdown)(row)
    kind, ending = ("application/json", "json") if as_json else ("text/markdown; charset=utf-8", "md")
    response = StreamingHttpResponse(streamed(pieces), content_type=kind)
    name = re.sub(r"[^\w.-]+", "-", row.name).strip(".-")[:80] or "topic"
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(f'{name}.{ending}')}"
    return response


def _search(words: str, topic_id: str) -> list[search.Hit]:
    return search.find_messages(words, topic_id=topic_id, mode="fts", limit=FOUND).hits


def _numbered(topic_id: str, seq: int | None) -> TopicMessage | None:
    return None if seq is None else TopicMessage.objects.filter(topic_id=topic_id, seq=seq).first()
