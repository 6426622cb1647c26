"""What clients of okto-nexus 0.3.1 find below /api/v1: its addresses beside ours, `items` in lists, pages by
number, and old ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from coordination.api import Artifacts, BusEndpoint, answer_of
from coordination.config import CoordinationSettings
from coordination.operations.agents import HubInfo
from inbox.api import Messages
from nexus.compat.okto.calls import our_id
from nexus.core.clock import iso, now
from nexus.core.operations.errors import invalid
from nexus.core.operations.parameters import Time, whole_number
from nexus.core.rest import pagination, schema, viewsets
from nexus.core.rest.pagination import BY_KEY

FARTHEST = 10_000  # rows before a page that is asked for by its number
PASSED = 200_000  # messages among which those of an agent are counted off


class NumberedPages(pagination.Pages):
    """Pages by `page` and `page_size`, too. A number stands for the cursor of the page before."""

    accepted = (*pagination.Pages.PARAMETERS, "page", "page_size")
    numbers: Mapping[str, int] | None = None

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        query = request.query_params
        if not query.keys() & {"page", "page_size"}:
            return super().paginate_queryset(queryset, request, view)
        if mixed := query.keys() & set(self.PARAMETERS):
            raise invalid(f"{min(mixed)} does not go with page and page_size.", field=min(mixed))
        number, size = (_whole(query.get(name, usual), name) for name, usual in (("page", "1"), ("page_size", "50")))
        size = min(size, pagination.MAX_LIMIT)
        if (before := (number - 1) * size) > FARTHEST:
            raise invalid(f"page begins after more than {FARTHEST:,} rows. Follow next_cursor.", field="page")
        keys, end = _keys(queryset, view)
        last = next(iter(keys[before - 1 : before]), None) if before else None
        if before and last is None:  # beyond the end, or beyond what is counted off
            rows, self.next_cursor = [], pagination.encode(view.ordering[0], end and (end, end))
        else:
            cursor = pagination.encode(view.ordering[0], last and (last, last))
            ours = query.copy()
            ours.update({"limit": str(size), "cursor": cursor or ""})
            view.http_request.GET = ours
            rows = super().paginate_queryset(queryset, request, view)
        self.numbers = {"page": number, "page_size": size, "total": keys[: FARTHEST + size].count()}
        return rows

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        response.data |= self.numbers or {}
        return response


def _keys(queryset: Any, view: Any) -> tuple[Any, Any]:
    """Return the keys of a list's rows in its order, and where they end before the list does."""
    ordering = view.ordering[0]
    end = pagination.end_of_look(queryset.model, True, None, PASSED) if view.passes_many() else None
    if end is not None:
        queryset = queryset.filter(pk__gte=end)
    if BY_KEY in queryset.query.annotations:
        ordering = f"-{BY_KEY}"
    return queryset.order_by(ordering).values_list(ordering.removeprefix("-"), flat=True), end


def _whole(text: str, field: str) -> int:
    number = whole_number(text, 10**9)
    if number is None:
        raise invalid(f"{field} must be a whole number.", field=field)
    return max(1, number)


pagination.ROWS.append("items")
viewsets.id_translators.append(our_id)
viewsets.filter_aliases |= {"agent": "actor_agent_id", "trace": "trace_id", "from_agent": "from_agent_id",
                            "to_agent": "recipient", "since": "created_at__gte"}  # fmt: skip
# The lists that it pages; all rows of a query are shown, so that they can be counted off.
Messages.pagination_class = Artifacts.pagination_class = NumberedPages

# Its features that are always on here; the others have no counterpart.
FEATURES = ("trace", "verification", "dag", "health")
WITHOUT = ("hitl", "memory", "harness_integrations", "replay")


class OktoHub(HubInfo):
    service: str
    trust_mode: str
    default_workspace_id: Annotated[str | None, Field(description="Always null.")]
    features: Annotated[dict[str, bool], Field(description="Those of okto-nexus 0.3.1.")]


class NewKey(TypedDict):
    agent_id: str
    api_key: str
    rotated_at: Time


class Paths(BusEndpoint):
    """Addresses of okto-nexus 0.3.1."""

    @extend_schema(responses={200: schema.reference(OktoHub)})
    def info(self, request: Request) -> Response:
        """Versions, the trust mode, and which features of okto-nexus 0.3.1 there are."""
        response = self.operate("nexus_info", {})
        if not response.exception:
            response.data["data"] |= {
                "service": "nexus",
                "trust_mode": CoordinationSettings.current().trust_mode,
                "default_workspace_id": None,
                "features": {f"feature_{name}": name in FEATURES for name in (*FEATURES, *WITHOUT)},
            }
        return response

    @extend_schema(
        parameters=[OpenApiParameter("workspace", str), OpenApiParameter("window_hours", int)],
        responses={200: answer_of("agent_graph")},
    )
    def graph(self, request: Request) -> Response:
        """Agents, and the messages and handoffs between them, as the operation agent_graph."""
        workspace, hours = request.query_params.get("workspace"), request.query_params.get("window_hours", "24")
        number = whole_number(hours)
        given: dict[str, Any] = {"window_hours": hours if number is None else number}
        if workspace not in (None, "", "all"):
            given["workspace_id"] = workspace
        return self.operate("agent_graph", given)

    @extend_schema(parameters=[OpenApiParameter("window", str)], responses={200: answer_of("coordination_health")})
    def health(self, request: Request, pk: str) -> Response:
        """How a workspace's coordination goes, as the operation coordination_health."""
        return self.operate(
            "coordination_health", {"workspace_id": pk, "window": request.query_params.get("window", "24h")}
        )

    @extend_schema(request=None, responses={200: schema.reference(NewKey)})
    def regenerate_key(self, request: Request, pk: str) -> Response:
        """Issue a key and show it, this once, as `POST /api/v1/agents/{agent_id}/key`."""
        response = self.operate("agent_key_issue", {"agent_id": pk})
        if not response.exception:
            response.data["data"]["rotated_at"] = iso(now())
        return response


routes = [
    path("info", Paths.as_view({"get": "info"})),
    path("graph", Paths.as_view({"get": "graph"})),
    path("workspaces/<str:pk>/health", Paths.as_view({"get": "health"})),
    path("agents/<str:pk>/regenerate-key", Paths.as_view({"post": "regenerate_key"})),
]
