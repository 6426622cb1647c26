"""The paths below /api/v1: every app's resources, the operations, the schema and its page."""

from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from core.apps import nexus_apps
from core.rest.operations import operation

urlpatterns = [
    path("<str:toolset>/operations/<str:name>", operation),
    path("operations/<str:name>", operation, {"toolset": "coordination"}),  # as it was before there were toolsets
    path("schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    *(route for app in nexus_apps() for route in app.routes()),
]
