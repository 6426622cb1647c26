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
    """Answer at the API's root: redirect a browser to the documentation, and give a program its address."""
    if "text/html" in request.headers.get("Accept", ""):  # a program accepts anything or JSON, and does not name HTML
        return redirect("docs")
    return JsonResponse(ok({"schema": reverse("schema"), "docs": reverse("docs")}))


urlpatterns = [
    path("", root),
    path("<str:toolset>/operations/<str:name>", operation),
    # the address from before there were toolsets
    path("operations/<str:name>", operation, {"toolset": "coordination"}),
    path("schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    *(route for app in nexus_apps() for route in app.routes()),
]
