"""The base of the apps' REST resources, with filters, ordering and cursors, and every operation by its name.

Reads are querysets narrowed to what the caller may see; every write is a dispatched operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, cast

from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils.decorators import method_decorator
from django.views.decorators.http import conditional_page
from django_filters.rest_framework import CharFilter, DjangoFilterBackend, FilterSet
from rest_framework.exceptions import MethodNotAllowed, UnsupportedMediaType
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from nexus.core.access import caller_of
from nexus.core.domain import domain
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import invalid, not_found
from nexus.core.operations.registry import TOOLSETS, Toolset
from nexus.core.operations.replies import ENVELOPE
from nexus.core.rest.errors import CompleteResponse, explain, json_object
from nexus.core.rest.pagination import Pages

# Each returns the id of ours that an id in a path means, which clients of another system write differently.
id_translators: list[Callable[[str], str]] = []
# Names that clients of another system give to filters, and our names.
filter_aliases: dict[str, str] = {}


class ListFilters(FilterSet):
    """Filters that compare ids as text: an unknown id finds nothing, without a query for it."""

    class Meta:
        filter_overrides = {
            models.ForeignKey: {"filter_class": CharFilter},
            models.OneToOneField: {"filter_class": CharFilter},
        }

    def filter_queryset(self, queryset: Any) -> Any:
        for name, value in self.form.cleaned_data.items():
            if isinstance(value, datetime):
                try:
                    value.astimezone(UTC)  # as the store is asked for it
                except OverflowError:
                    raise invalid(f"{name} lies outside of the years 1 to 9999, in UTC.", field=name) from None
        return super().filter_queryset(queryset)


class FilterBackend(DjangoFilterBackend):
    """The filters that a view declares; an unknown query parameter is an error."""

    filterset_base = ListFilters

    def filter_queryset(self, request: Any, queryset: Any, view: Any) -> Any:
        filterset = self.get_filterset_class(view, queryset)
        known = {"api_key", *view.pagination_class.accepted, *(filterset.base_filters if filterset else ())}
        if aliases := set(request.query_params) & (filter_aliases.keys() - known):
            query = request.query_params.copy()
            for name in aliases:
                if filter_aliases[name] in known:
                    query.setlist(filter_aliases[name], query.pop(name))
            view.http_request.GET = query
        if unknown := sorted(set(request.query_params) - known):
            raise invalid(f"Unknown query parameter {unknown[0][:200]!r}; known are {', '.join(sorted(known))}.")
        return super().filter_queryset(request, queryset, view)


@method_decorator(conditional_page, name="dispatch")  # an ETag, and 304 to who has it already
class Endpoint(GenericViewSet[Any]):
    """The base of every path: the caller, and operations called as that caller."""

    toolset: ClassVar[Toolset]  # whose operations the path calls
    http_method_names = ["get", "head", "post", "patch", "delete"]
    filter_backends: Sequence[Any] = []
    pagination_class: Any = None

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        self.http_request = request
        return super().initialize_request(request, *args, **kwargs)

    @property
    def caller(self) -> Caller:
        """The caller of the request."""
        caller: Any = self.request.auth
        return cast(Caller, caller)

    @property
    def body(self) -> dict[str, Any]:
        """The JSON object in the request."""
        return cast(dict[str, Any], self.request.data)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        domain().refresh_settings()
        for translate in id_translators if "pk" in self.kwargs else ():
            self.kwargs["pk"] = translate(self.kwargs["pk"])  # the dict that the handler gets, too

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        may_hold_a_key = request.method != "GET"
        response.headers.setdefault("Cache-Control", "no-store" if may_hold_a_key else "private, no-cache")
        return response

    def operate(self, name: str, arguments: Mapping[str, Any], success: int = 200) -> Response:
        """Call an operation and answer in its toolset's form; `success` is the status of a result."""
        outcome = dispatch.perform(self.toolset, self.caller, name, arguments)
        failed = outcome.error is not None
        response = CompleteResponse(self.toolset.reply.body(outcome), status=outcome.status if failed else success)
        for name, value in outcome.headers.items():
            response.headers[name] = value
        response.exception = failed
        return response

    def query_parameters(self) -> list[Any]:
        """Return the path's query parameters besides those of a list, for the OpenAPI schema."""
        return []


class Resource(Endpoint):
    """The base of every listed table: pages, filters, and rows narrowed to what the caller may see."""

    queryset: Any
    filter_backends = [FilterBackend]
    pagination_class = Pages
    same_as: ClassVar[str]  # the operation with the same content: an agent that may not use it reads nothing here
    ordering: Sequence[str]  # the columns that order a list, none of them null; the first is the default
    unindexed: ClassVar[frozenset[str]] = frozenset()  # filters that no index serves in the order of the key

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return self.queryset
        rows, agent_id = self.rows(), self.caller.agent_id
        if agent_id is None:
            return rows
        domain().check_allowed(agent_id, self.toolset.operations[self.same_as])
        return self.visible_rows(rows, agent_id)

    def rows(self) -> Any:
        """Return all of the resource's rows, with what their representation joins."""
        return self.queryset.all()

    def passes_many(self) -> bool:
        """Return whether a request may have to skip many rows to fill a page."""
        return bool(self.unindexed.intersection(self.request.query_params))

    def visible_rows(self, rows: Any, agent_id: str) -> Any:
        """Return the `rows` that the agent may see, as far as a query can tell."""
        return rows

    def admits(self, row: Any) -> bool:
        """Return whether the caller may see a row, by the routing rules that no query can express."""
        return True

    def get_object(self) -> Any:
        if "\x00" in self.kwargs[self.lookup_url_kwarg or self.lookup_field]:
            raise Http404  # no id holds one, and not every store lets one ask
        row = super().get_object()
        if not self.admits(row):
            raise Http404
        return row

    def show(self, row: Any) -> Mapping[str, Any]:
        """Return a row as the list shows it; the schema uses its annotation."""
        raise NotImplementedError

    def show_whole(self, row: Any) -> Mapping[str, Any]:
        """Return a single row, which may have more fields."""
        return self.show(row)

    def list(self, request: Request) -> Response:
        """A page."""
        return self.page(self.get_queryset())

    def page(self, rows: Any) -> Response:
        """Return the page of `rows` that the query asks for."""
        chosen = cast(Sequence[Any], self.paginate_queryset(self.filter_queryset(rows)))
        return self.get_paginated_response([self.show(row) for row in chosen])

    def retrieve(self, request: Request, pk: str) -> Response:
        """One of them."""
        return Response(self.show_whole(self.get_object()))


async def operation(request: HttpRequest, toolset: str, name: str) -> HttpResponse:
    """POST /api/v1/{toolset}/operations/{name}: the very answer of MCP. A waiting operation holds no thread."""
    headers = {"Cache-Control": "no-store", "Allow": "POST"}
    chosen = TOOLSETS.get(toolset)
    try:
        if request.method != "POST":
            raise MethodNotAllowed(str(request.method))
        caller = await caller_of(request, transport="rest")
        if request.content_type not in ("application/json", ""):
            raise UnsupportedMediaType(request.content_type or "")
        if chosen is None:
            raise not_found("toolset", toolset[:200])
        outcome = await dispatch.aperform(chosen, caller, name, json_object(request.body))
        body, status = chosen.reply.body(outcome), outcome.status
        headers |= outcome.headers
    except Exception as error:
        body, status = explain(error, chosen.reply if chosen else ENVELOPE)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JsonResponse(body, status=status, headers=headers)


# No cookie alone gets here from another site: a foreign Origin is refused. (The decorator would add a coroutine that
# every parked call holds.)
operation.csrf_exempt = True  # type: ignore[attr-defined]
