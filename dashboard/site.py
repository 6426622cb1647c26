"""The admin site: the theme's, with the dashboard's pages in it and one search for Ctrl-K and the search page."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import URLPattern
from unfold.sites import UnfoldAdminSite

from core.access import runs_others_programs


class NexusAdminSite(UnfoldAdminSite):  # type: ignore[misc]  # the theme ships no types
    """Every page is behind `admin_view`: a login, or a direct local request (see middleware)."""

    enable_nav_sidebar = True

    def extra_urls(self) -> list[URLPattern]:
        """The dashboard's pages, before the models' own."""
        from dashboard.urls import pages

        return pages(self)

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Home: a picture of now."""
        from dashboard.pages.home import home

        return home(request)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """The login; it says what opens it where to be on this machine is not enough."""
        answer: HttpResponseBase = super().login(
            request, {**(extra_context or {}), "runs_others_programs": runs_others_programs()}
        )
        return answer

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """End a login, where there is one."""
        if getattr(request, "is_local_operator", False):
            messages.info(request, "You came in without a login, so there is none to end.")
            return redirect("admin:index")
        answer: HttpResponseBase = super().logout(request, extra_context)
        return answer

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """What Ctrl-K shows. The theme's own search caches for minutes; a live board may not."""
        from dashboard.pages.search import palette

        return palette(request)
