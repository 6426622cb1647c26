"""The base of the admin's lists of records: read-only, and no page whose cost grows with the table."""

from __future__ import annotations

from typing import Any

from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.paginator import InfinitePaginator

from nexus.web.forms import searched


class RecordAdmin(ModelAdmin):  # type: ignore[misc]  # the theme ships no types
    """A read-only list of rows. Only operations change them, and history is neither edited nor deleted."""

    paginator = InfinitePaginator  # avoids a COUNT(*) over half a million rows
    show_full_result_count = False
    list_per_page = 50
    list_fullwidth = True
    actions = None

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        return super().get_search_results(request, queryset, searched(search_term))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def text(value: Any) -> SafeString:
    """Return an agent's text for a cell: cut, isolated, with invisible control characters made visible."""
    return _cell("name", value)


def moment(value: Any) -> SafeString:
    """Return a time in the viewer's time zone."""
    return _cell("when", value)


def code(value: Any) -> SafeString:
    """Return a JSON document, indented."""
    return _cell("code", value)


def body(value: str) -> SafeString:
    """Return a Markdown text as safe HTML."""
    return _cell("body", value)


def _cell(style: str, value: Any) -> SafeString:
    return render_to_string("web/cell.html", {"style": style, "value": value})


def link(view: str, label: Any, *arguments: str, **query: str) -> SafeString | str:
    """Return a link to an admin page; only the label if there is no target."""
    if arguments and not arguments[0]:
        return "–"
    url = reverse(f"admin:{view}", args=arguments)
    return format_html(
        '<a class="nx-link" href="{}">{}</a>', f"{url}?{urlencode(query)}" if query else url, text(label)
    )
