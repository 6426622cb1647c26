"""The paths below /api/v1: every app's resources, the operations, the schema and its page."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import path, reverse
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView

from nexus.core.apps import nexus_apps
from nexus.core.operations.replies import ok
from nexus.core.rest.operations import operation


def root(request: HttpRequest) -> HttpResponse:
    """Where the API begins: a browser is led to its documentation, a program is told of it."""
    if "text/html" in request.headers.get("Accept", ""):  # a program takes anything, or JSON; it names no HTML
        return redirect("docs")
    return JsonResponse(ok({"schema": reverse("schema"), "docs": reverse("docs")}))


urlpatterns = [
    path("", root),
    path("<str:toolset>/operations/<str:name>", operation),
    path("operations/<str:name>", operation, {"toolset": "coordination"}),  # as it was before there were toolsets
    path("schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    *(route for app in nexus_apps() for route in app.routes()),
]
