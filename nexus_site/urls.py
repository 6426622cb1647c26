"""Every HTTP path of the hub that Django serves."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from coordination.stream import stream
from nexus_site import health

urlpatterns = [
    path("healthz", health.alive),
    path("readyz", health.ready),
    path("metrics", health.measured),
    path("api/v1/stream", stream),
    path("admin/", admin.site.urls),
]
