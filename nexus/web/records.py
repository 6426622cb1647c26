"""The base of every list of records in the admin: read-only, and no page whose cost grows with the table."""

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

from nexus.web.filters import searched


class RecordAdmin(ModelAdmin):  # type: ignore[misc]  # the theme ships no types
    """Rows are looked at here and changed by operations only: history has no edit and no delete."""

    paginator = InfinitePaginator  # a COUNT(*) over half a million rows is no page's business
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
    """A text that an agent wrote, for a cell: cut, isolated, its invisible controls made visible."""
    return _cell("name", value)


def moment(value: Any) -> SafeString:
    """A time in the viewer's zone."""
    return _cell("when", value)


def code(value: Any) -> SafeString:
    """A document in JSON as its author wrote it: indented."""
    return _cell("code", value)


def body(value: str) -> SafeString:
    """A Markdown text, safely rendered."""
    return _cell("body", value)


def _cell(style: str, value: Any) -> SafeString:
    return render_to_string("web/cell.html", {"style": style, "value": value})


def link(view: str, label: Any, *arguments: str, **query: str) -> SafeString | str:
    """A link to an admin page; the label alone where there is nothing to link to."""
    if arguments and not arguments[0]:
        return "–"
    url = reverse(f"admin:{view}", args=arguments)
    return format_html(
        '<a class="nx-link" href="{}">{}</a>', f"{url}?{urlencode(query)}" if query else url, text(label)
    )
