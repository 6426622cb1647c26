"""The base of the admin's lists of records: read-only, and no page whose cost grows with the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import unescape
from itertools import chain
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html, format_html_join, strip_tags
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import display
from unfold.paginator import InfinitePaginator

from nexus.core.access import is_viewer
from nexus.core.apps import actions
from nexus.core.contributions import Action
from nexus.core.operations.registry import TOOLSETS, Operation
from nexus.web.exports import KINDS, as_file, table
from nexus.web.forms import OperationForm, ParametersForm, searched
from nexus.web.page import frame, operate, posted, render

NONE = "–"
MOST_CHOSEN = 200  # rows of one call: their ids stand in an address
MOST_EXPORTED, AT_ONCE = 10_000, 200  # rows of a file, and of one query for it


class OperationAdmin(ModelAdmin):  # type: ignore[misc]  # the theme ships no types
    """Read-only rows. Only operations change them, and history is neither edited nor deleted.

    `operations` names those that an operator may call on a row or on many (see `contributions.Action`); `creates` the
    one behind *Add*.
    """

    operations: Sequence[str] = ()
    creates = ""
    asks: Mapping[str, Callable[[], forms.Field]] = {}  # fields of *Add* that its parameters alone do not say
    shows_once = ("", "")  # a field of its answer that no page shows again, and what to know about it
    intro = ""  # what the list is, in a sentence or two
    finds_by: Sequence[str] = ()  # what the search compares, where no index serves all of it in the order of the list
    exports: Sequence[str] = ()  # what `exported` returns, where that is more than the list's columns
    rare: Sequence[str] = ()  # fields of a row's page that it has only where they are not empty
    list_before_template = "web/intro.html"
    list_after_template = "web/exports.html"
    change_form_outer_before_template = "web/row_actions.html"
    paginator = InfinitePaginator  # avoids a COUNT(*) over half a million rows
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they count all rows, once for each choice
    list_per_page = 50
    list_fullwidth = True

    def get_search_results(self, request: HttpRequest, queryset: QuerySet[Any], search_term: str) -> Any:
        """Find rows by `search_fields`, or by the first of `finds_by` that finds any."""
        term = searched(search_term)
        if not (term and self.finds_by):
            return super().get_search_results(request, queryset, term)
        found = (rows for by in self.finds_by if (rows := queryset.filter(**{by: term})).exists())
        return next(found, queryset.none()), False

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of a row's page, of `rare` those that say something about it."""
        kept = vars(obj) if obj else {}  # a page asks several times
        if "silent" not in kept:
            kept["silent"] = {name for name in self.rare if obj and self._cell(name, obj) in ("", NONE)}
        return [
            (title, {**options, "fields": [name for name in options["fields"] if name not in kept["silent"]]})
            for title, options in super().get_fieldsets(request, obj)
        ]

    def operations_on(self, row: Any) -> Sequence[str]:
        """Return those of `operations` that a row admits now."""
        return self.operations

    def completed(self, rows: list[Any]) -> list[Any]:
        """Return the rows of a page with what cells need and would query one by one."""
        return rows

    def subject(self, row: Any) -> str:
        """Return what the operations call a row."""
        return str(row.pk)

    def get_actions(self, request: HttpRequest) -> dict[str, tuple[Callable[..., HttpResponse], str, str]]:
        """Return the operations on many rows; none for a viewer."""
        if is_viewer(request.user):
            return {}
        return {name: (_ask, name, actions()[name].label) for name in self.operations}

    def links_on(self, row: Any) -> Sequence[tuple[str, str]]:
        """Return labels and addresses of pages for what an operator does next about a row."""
        return ()

    def actions_on(self, row: Any, user: Any) -> list[tuple[Action, str]]:
        """Return the actions that a row's page has for a user, each with what its operation calls the row."""
        admitted = () if is_viewer(user) else self.operations_on(row)
        return [(actions()[name], self.subject(row)) for name in admitted]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show a row below its actions."""
        answer: HttpResponse = super().change_view(request, object_id, form_url, frame())
        return answer

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """Show the form of the operation that creates a row, and call it."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        toolset = next(each for each in TOOLSETS.values() if each.listed and self.creates in each.operations)
        form = self.form_to_add(request, toolset.operations[self.creates])
        if form.is_valid():
            done = f"{str(self.opts.verbose_name).capitalize()} added."
            envelope = operate(toolset, request, self.creates, done, form, **form.arguments())
            if envelope["ok"]:
                return self.added(request, envelope["data"])
        return render(request, "web/add.html", f"Add {self.opts.verbose_name}", form=form, back=self._list())

    def form_to_add(self, request: HttpRequest, operation: Operation[Any]) -> OperationForm:
        """Return the form of *Add*."""
        return ParametersForm(operation.params, posted(request), asks=self.asks)

    def added(self, request: HttpRequest, data: dict[str, Any]) -> HttpResponse:
        """Return the page after a row was created."""
        field, what_for = self.shows_once
        if secret := data.get(field):
            context = {"secret": secret, "what_for": what_for, "back": self._list()}
            return render(request, "web/secret.html", f"New {self.opts.verbose_name}", **context)
        return redirect(self._list())

    def _list(self) -> str:
        return reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        row = super().get_object(request, object_id, from_field)
        return row and self.completed([row])[0]

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        changelist = super().get_changelist_instance(request)
        rows = changelist.result_list = self.completed(list(changelist.result_list))
        by = "" if "o" in changelist.params else self._key()
        if by:  # at the same cost everywhere, where an offset reads all rows before it
            before, last = f"{by}__lt", self.older(request, rows, is_full=len(rows) == self.list_per_page)
            changelist.newest = before in changelist.params and changelist.get_query_string(remove=[before])
            changelist.older = last is not None and changelist.get_query_string({before: last})
        changelist.by_key = bool(by)
        return changelist

    def _key(self) -> str:
        """Return the unique column whose descending order is the list's, by which its pages go on; or nothing."""
        first, *more = self.ordering or ("",)
        name = first[1:] if isinstance(first, str) and first.startswith("-") and not more else ""
        return name if name and self.opts.get_field(name).unique else ""

    def older(self, request: HttpRequest, rows: Sequence[Any], *, is_full: bool) -> Any:
        """Return the key before which the page of older rows begins; None if there are none."""
        return getattr(rows[-1], self._key()) if is_full else None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponseBase:
        """Show the list; `?export=csv` or `ndjson` returns its columns as a file."""
        kind = request.GET.get("export")
        if kind in KINDS:
            filters = request.GET.copy()
            del filters["export"]
            request.GET, request.exports = filters, True  # type: ignore[assignment, attr-defined]  # as Django's does
            with suppress(IncorrectLookupParameters):  # the list itself says so
                return self._exported(request, kind)
        answer: HttpResponse = super().changelist_view(request, frame())
        return answer

    def _exported(self, request: HttpRequest, kind: str) -> HttpResponseBase:
        shown = self.get_changelist_instance(request)
        columns = self.exports or [name for name in shown.list_display if name != "action_checkbox"]
        batches = self._batches(shown.queryset[:MOST_EXPORTED], columns)
        if kind == "csv":
            rows: Iterator[Any] = ([[row.get(name) for name in columns] for row in batch] for batch in batches)
            texts = (table(each) for each in chain([[columns]], rows))
        else:
            texts = ("".join(f"{json.dumps(row)}\n" for row in batch) for batch in batches)
        return as_file(texts, str(self.opts.verbose_name_plural), kind)

    def exported(self, row: Any, columns: Sequence[str]) -> dict[str, Any]:
        """Return what a file has of a row: what the list's columns show, as plain text."""
        return {name: self._cell(name, row) for name in columns}

    def _batches(self, rows: QuerySet[Any], columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        for start in range(0, MOST_EXPORTED, AT_ONCE):
            batch = self.completed(list(rows[start : start + AT_ONCE]))
            yield [self.exported(row, columns) for row in batch]
            if len(batch) < AT_ONCE:
                return

    def _cell(self, name: str, row: Any) -> str:
        value = getattr(self, name)(row) if hasattr(self, name) else getattr(row, name)
        return unescape(" ".join(strip_tags(str(value)).split()))

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(self.creates) and not is_viewer(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class ChoiceFilter(admin.SimpleListFilter):
    """Filter by one of some choices; another value filters nothing."""

    choices_offered: tuple[tuple[str, str], ...] = ()

    def lookups(self, request: HttpRequest, model_admin: Any) -> Any:
        return self.choices_offered

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return self.chosen(queryset, value) if value in dict(self.choices_offered) else queryset

    def chosen(self, queryset: Any, value: str) -> Any:
        """Return the rows of a choice."""
        raise NotImplementedError


@admin.action
def _ask(self: OperationAdmin, request: HttpRequest, rows: QuerySet[Any]) -> HttpResponse:
    """Ask once more before an operation is called on each of the chosen rows."""
    chosen = [self.subject(row) for row in rows[: MOST_CHOSEN + 1]]
    query = {"do": request.POST["action"], "on": chosen, "next": request.get_full_path()}
    return redirect(f"{reverse('admin:act')}?{urlencode(query, doseq=True)}")


def column(description: str, of: Callable[[Any], Any], *, ordering: str | None = None) -> Callable[[Any, Any], Any]:
    """Return a column of a list, or a field of a record, with what `of` returns of a row."""

    @admin.display(description=description, ordering=ordering)
    def shown(self: Any, row: Any) -> Any:
        return of(row)

    return shown


def badge(
    description: str, tones: Mapping[str, str] | str, of: Callable[[Any], str | None]
) -> Callable[[Any, Any], Any]:
    """Return a column of labels; `tones` has each value's tone: success, info, warning or danger."""
    decorate: Callable[..., Callable[[Any, Any], Any]] = display(label=tones)
    return decorate(column(description, of))


def text(value: Any) -> SafeString:
    """Return an agent's text for a cell: cut, isolated, with invisible control characters made visible."""
    return _cell("name", value)


def moment(value: Any) -> SafeString:
    """Return a time in the viewer's time zone."""
    return _cell("when", value)


def code(value: Any) -> SafeString:
    """Return a JSON document, indented."""
    return _cell("code", value)


def lines(value: Any) -> SafeString:
    """Return an agent's text whole, with its line breaks; invisible control characters are made visible."""
    return _cell("lines", value)


def each(values: Sequence[str] | None) -> SafeString | str:
    """Return texts, each in a block of its own."""
    return format_html_join("", "<div>{}</div>", ((lines(value),) for value in values or ())) or NONE


def body(value: str) -> SafeString:
    """Return a text as safe HTML: Markdown, or indented JSON."""
    return _cell("body", value)


def _cell(style: str, value: Any) -> SafeString:
    return render_to_string("web/cell.html", {"style": style, "value": value})


def link(view: str, label: Any, *arguments: str, **query: str) -> SafeString | str:
    """Return a link to an admin page; only the label if there is no target."""
    if arguments and not arguments[0]:
        return NONE
    url = reverse(f"admin:{view}", args=arguments)
    return format_html(
        '<a class="nx-link" href="{}">{}</a>', f"{url}?{urlencode(query)}" if query else url, text(label)
    )
