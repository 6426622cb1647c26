"""All HTTP paths of the hub that Django serves."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from nexus_site import api
from nexus_site.serving import health

urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("metrics", health.measured),
    path("api/v1", api.root),
    path("api/v1/", include(api)),
    path("", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
]

# Errors below /api/ are in the envelope.
handler400 = "nexus.core.rest.errors.bad_request"
handler404 = "nexus.core.rest.errors.unknown"
handler500 = "nexus.core.rest.errors.broken"
