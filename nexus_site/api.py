"""The paths below /api/v1: every app's resources, the operations, the schema and its page."""

from __future__ import annotations

from django.urls import include, path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.routers import SimpleRouter

from coordination import api
from coordination.stream import stream
from handoffs.api import Handoffs
from inbox.api import Deliveries, Messages

router = SimpleRouter(trailing_slash=False)
router.register("workspaces", api.Workspaces, basename="workspace")
router.register("agents", api.Agents, basename="agent")
router.register("sessions", api.Sessions, basename="session")
router.register("channels", api.Channels, basename="channel")
router.register("messages", Messages, basename="message")
router.register("deliveries", Deliveries, basename="delivery")
router.register("handoffs", Handoffs, basename="handoff")
router.register("artifacts", api.Artifacts, basename="artifact")
router.register("events", api.Events, basename="event")

urlpatterns = [
    path("stream", stream),
    path("operations/<str:name>", api.operation),
    path("capabilities", api.Capabilities.as_view({"get": "page"})),
    path("settings", api.Settings.as_view({"get": "show", "patch": "partial_update"})),
    path("schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("", include(router.urls)),
]
