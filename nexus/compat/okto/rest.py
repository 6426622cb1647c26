"""What clients of okto-nexus 0.3.1 find below /api/v1: its addresses beside ours, `items` in lists, and old ids."""

from __future__ import annotations

from typing import Annotated, Any

from django.urls import path
from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import TypedDict

from coordination.api import Endpoint, answer_of
from coordination.config import CoordinationSettings
from coordination.operations.agents import HubInfo
from nexus.compat.okto.calls import our_id
from nexus.core.clock import iso, now
from nexus.core.operations.parameters import Time, whole_number
from nexus.core.rest import pagination, schema, viewsets

pagination.ROWS.append("items")
viewsets.id_translators.append(our_id)

# Its features that are always on here; the others have no counterpart.
FEATURES = ("trace", "verification", "dag", "health")
WITHOUT = ("hitl", "memory", "harness_integrations", "replay")


class Hub(HubInfo):
    service: str
    trust_mode: str
    default_workspace_id: Annotated[str | None, Field(description="Always null.")]
    features: Annotated[dict[str, bool], Field(description="Those of okto-nexus 0.3.1.")]


class NewKey(TypedDict):
    agent_id: str
    api_key: str
    rotated_at: Time


class Paths(Endpoint):
    """Addresses of okto-nexus 0.3.1."""

    @extend_schema(responses={200: schema.reference(Hub)})
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
