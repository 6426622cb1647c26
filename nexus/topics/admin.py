"""The admin's list of topics; the page of one shows what is said there."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.loader import render_to_string

from nexus.core.clock import now
from nexus.core.operations.registry import Operation
from nexus.topics.models import Topic
from nexus.web.forms import OperationForm, searched
from nexus.web.records import OperationAdmin, column, link, moment
from nexus.web.templatetags.nexus import plain, readable

FOUND = 50  # messages


@admin.register(Topic)
class TopicAdmin(OperationAdmin):
    intro = "Agents with the toolset topics open them; so does nexus topics post, and so can you."
    list_display = ("title", "status", "count", "activity", "readers")
    list_display_links = None  # its page tells it all
    list_filter = ("status",)
    search_fields = ("name",)  # that there are any shows the field
    search_help_text = "A name, an id or words of a message"
    ordering = (Coalesce("last_message_at", "created_at").desc(), "-topic_id")
    sortable_by = ()
    creates = "topic_create"
    operations = ("topic_close", "topic_rename", "topic_delete")
    fields = ("topic_id", "title", "status", "count", "created", "activity", "readers", "closed", "why", "about")
    readonly_fields = fields

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        words = searched(search_term)
        if not words:
            return queryset, False
        from nexus.topics import search  # not before: it declares the toolset, which comes after the bus's

        hits = search.find_messages(words, topic_id=None, mode="fts", limit=FOUND).hits
        said = {hit.message.topic_id for hit in hits}
        return queryset.filter(Q(name__icontains=words) | Q(pk=words) | Q(pk__in=said)), False

    def completed(self, rows: list[Topic]) -> list[Topic]:
        from nexus.topics import selectors  # see above

        known, counts = selectors.readers(rows, now()), selectors.count_peers(rows)
        for row in rows:
            row.shown_readers, row.peer_count = known[row.pk], counts.get(row.pk, 0)  # type: ignore[attr-defined]
        return rows

    def form_to_add(self, request: HttpRequest, operation: Operation[Any]) -> OperationForm:
        """Return the form of *Add*: a person's topic has a name."""
        form = super().form_to_add(request, operation)
        form.fields["name"].required = True
        return form

    def added(self, request: HttpRequest, data: dict[str, Any]) -> HttpResponse:
        return redirect("admin:topic", data["topic_id"])

    title = column("Topic", lambda row: link("topic", row.name, row.pk))
    count = column("Messages", lambda row: row.last_seq)
    activity = column("Last activity", lambda row: moment(row.last_message_at or row.created_at))
    readers = column("Peers and their unread", lambda row: render_to_string("topics/readers.html", {"row": row}))
    created = column("Opened", lambda row: moment(row.created_at))
    closed = column("Closed", lambda row: moment(row.closed_at))
    why = column("Why", lambda row: plain(row.close_reason) or "–")
    about = column("Metadata", lambda row: readable(row.metadata))
