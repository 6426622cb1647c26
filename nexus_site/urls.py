"""All HTTP paths of the hub that Django serves. Below /api/v1 they are the apps' resources, the operations, the schema
and its page."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import include, path, reverse
from django.views.generic import RedirectView
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.request import Request

from nexus.core.apps import nexus_apps
from nexus.core.operations.replies import ok
from nexus.core.rest.viewsets import operation
from nexus.hooks.views import notice_link
from nexus.web.login import enter
from nexus_site.serving import health


def api_root(request: HttpRequest) -> HttpResponse:
    """Answer at the API's root: redirect a browser to the documentation, and give a program its address."""
    if "text/html" in request.headers.get("Accept", ""):  # a program accepts anything or JSON, and does not name HTML
        return redirect("docs")
    return JsonResponse(ok({"schema": reverse("schema"), "docs": reverse("docs")}))


class Schema(SpectacularJSONAPIView):
    """The OpenAPI schema. To make it takes seconds of the processor, so each process makes it once."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        with MAKING:
            schema = _schema()
        headers = {"Content-Disposition": 'inline; filename="Nexus.json"'}
        return HttpResponse(schema, content_type=request.accepted_renderer.media_type, headers=headers)


MAKING = Lock()  # requests that come meanwhile wait for the same schema


@cache
def _schema() -> bytes:
    made = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]
    return bytes(OpenApiJsonRenderer().render(made))


api = [
    path("", api_root),
    path("<str:toolset>/operations/<str:name>", operation),
    # the address from before there were toolsets
    path("operations/<str:name>", operation, {"toolset": "coordination"}),
    path("schema", Schema.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    *(route for app in nexus_apps() for route in app.routes()),
]
urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready, name="readyz"),
    path("metrics", health.metrics_view),
    path("api/v1", api_root),
    path("api/v1/", include(api)),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("answer/<str:token>", notice_link),
    path("login/<str:code>", enter),
    path("admin/", admin.site.urls),
]

# A page for a person, the envelope for a program.
handler400 = "nexus.core.rest.errors.bad_request"
handler404 = "nexus.core.rest.errors.unknown"
handler500 = "nexus.core.rest.errors.broken"
