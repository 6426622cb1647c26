from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib.admin import apps as admin
from django.db.models.signals import post_migrate
from prometheus_client.metrics_core import CounterMetricFamily

from nexus.core.apps import NexusAppConfig


class NexusAdminConfig(admin.AdminConfig):
    """Django's admin with our site."""

    default = False
    default_site = "nexus.dashboard.site.NexusAdminSite"


def _let_viewers_view(**about: Any) -> None:
    from coordination.services import operators

    operators.viewers()


class DashboardConfig(NexusAppConfig):
    name = "nexus.dashboard"

    def ready(self) -> None:
        super().ready()
        post_migrate.connect(_let_viewers_view, sender=self)  # the last app: the permissions of all are there

    def metrics(self) -> Iterable[Any]:
        from nexus.dashboard.site import THROTTLE

        family = CounterMetricFamily("nexus_logins", "Logins that were not let in, by outcome.", labels=["outcome"])
        family.add_metric(["failed"], THROTTLE.failed)
        family.add_metric(["refused"], THROTTLE.refused)
        yield family
