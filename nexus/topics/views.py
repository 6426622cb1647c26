"""The page of a topic: its messages, and what an operator does there."""

from __future__ import annotations

import re
from functools import partial
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
from nexus.topics.forms import CloseForm, RenameForm, SayForm, TopicFilters
from nexus.topics.models import Topic, TopicMessage
from nexus.topics.toolset import TOPICS
from nexus.web.page import form_only, operate, render, streamed
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


def _topic(request: HttpRequest, topic_id: str, filters: TopicFilters, **forms: Any) -> HttpResponse:
    row = get_object_or_404(Topic, pk=topic_id)
    words, at, before = filters.text("q"), filters.number("at"), filters.number("before")
    limit = NEWEST if at is None and before is None else PAGE
    stream = NOTHING if words else selectors.stream(row, at=at, before=before, limit=limit)
    readers = selectors.readers([row], now())[topic_id]
    answered = _numbered(topic_id, filters.number("answer"))
    upto = stream.messages[-1].seq if stream.messages else 0
    say = forms.get("say") or SayForm(
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
        **{
            "say": say,
            "close_form": CloseForm(auto_id="close-%s"),
            "rename_form": RenameForm(initial={"name": row.name}, auto_id="rename-%s"),
            **forms,
        },
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


@form_only(partial(redirect, "admin:topic"))
def close(request: HttpRequest, topic_id: str) -> HttpResponse:
    """Close a topic for everybody."""
    form = CloseForm(request.POST)
    if form.is_valid():
        reason = form.cleaned_data["reason"] or None
        envelope = operate(TOPICS, request, "topic_close", "", form, topic_id=topic_id, reason=reason)
        if envelope["ok"]:
            warnings = envelope["data"].get("warnings", [])
            for warning in warnings:
                messages.warning(request, warning["message"])
            if not warnings:
                messages.success(request, "The topic is closed.")
    return _topic(request, topic_id, TopicFilters(request.GET), close_form=form) if form.errors else _to(topic_id)


@form_only(partial(redirect, "admin:topic"))
def rename(request: HttpRequest, topic_id: str) -> HttpResponse:
    """Rename a topic."""
    form = RenameForm(request.POST, auto_id="rename-%s")
    if form.is_valid():
        envelope = operate(TOPICS, request, "topic_rename", "", form, topic_id=topic_id, **form.cleaned_data)
        if envelope["ok"]:
            rewritten = envelope["data"]["messages"]
            also = f" Messages rewritten: {rewritten}." if rewritten else ""
            messages.success(request, f"The topic is renamed.{also}")
    return _topic(request, topic_id, TopicFilters(request.GET), rename_form=form) if form.errors else _to(topic_id)


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


def delete(request: HttpRequest, topic_id: str) -> HttpResponse:
    """Show what is deleted with a topic; POST deletes it."""
    row = get_object_or_404(Topic, pk=topic_id)
    if request.method == "POST":
        envelope = operate(TOPICS, request, "topic_delete", "", topic_id=topic_id)
        if not envelope["ok"]:
            return _to(topic_id)
        gone = envelope["data"]
        messages.success(request, f"The topic is deleted, with {gone['messages']} messages and {gone['peers']} names.")
        return redirect("admin:topics_topic_changelist")
    readers = selectors.readers([row], now())[topic_id]
    return render(
        request,
        "topics/topic_delete.html",
        "Delete a topic",
        topic=row,
        count=row.messages.count(),
        peers=row.peers.count(),
        present=[each for each in readers if each.present],
    )


def delete_message(request: HttpRequest, message_id: str) -> HttpResponse:
    """Show what is deleted with a message; POST deletes it and the answers to it."""
    row = get_object_or_404(TopicMessage.objects.select_related("topic"), message_id=message_id)
    if request.method == "POST":
        envelope = operate(TOPICS, request, "topic_message_delete", "", message_id=message_id)
        if envelope["ok"]:
            count = envelope["data"]["messages"]
            messages.success(request, f"Deleted: {count} message{'' if count == 1 else 's'}.")
        return _to(row.topic_id)
    count = selectors.count_replies(row)
    answers = selectors.excerpts(row.topic_id).filter(reply_to=row.message_id).order_by("document")[: selectors.ANSWERS]
    return render(
        request,
        "topics/topic_delete.html",
        "Delete a message",
        topic=row.topic,
        message=row,
        count=count,
        answers=answers,
    )


def _search(words: str, topic_id: str) -> list[search.Hit]:
    return search.find_messages(words, topic_id=topic_id, mode="fts", limit=FOUND).hits


def _numbered(topic_id: str, seq: int | None) -> TopicMessage | None:
    return None if seq is None else TopicMessage.objects.filter(topic_id=topic_id, seq=seq).first()


def _to(topic_id: str) -> HttpResponse:
    return redirect("admin:topic", topic_id)
