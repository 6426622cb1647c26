from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from django.contrib.admin import apps as admin

from core.apps import NexusAppConfig

if TYPE_CHECKING:
    from core.contributions import Page


class NexusAdminConfig(admin.AdminConfig):
    """Django's admin, with our site in it."""

    default = False
    default_site = "dashboard.site.NexusAdminSite"


class DashboardConfig(NexusAppConfig):
    name = "dashboard"

    def pages(self) -> Sequence[Page]:
        from dashboard.urls import PAGES

        return PAGES
