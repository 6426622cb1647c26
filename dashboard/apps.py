from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.contrib.admin import apps as admin
from prometheus_client.metrics_core import CounterMetricFamily

from core.apps import NexusAppConfig

if TYPE_CHECKING:
    from core.contributions import Page


class NexusAdminConfig(admin.AdminConfig):
    """Django's admin, with our site in it."""

    default = False
    default_site = "dashboard.site.NexusAdminSite"


class DashboardConfig(NexusAppConfig):
    name = "dashboard"

    def metrics(self) -> Iterable[Any]:
        from dashboard.site import THROTTLE

        family = CounterMetricFamily("nexus_logins", "Logins that were not let in, by outcome.", labels=["outcome"])
        family.add_metric(["failed"], THROTTLE.failed)
        family.add_metric(["refused"], THROTTLE.refused)
        yield family

    def pages(self) -> Sequence[Page]:
        from dashboard.urls import PAGES

        return PAGES
