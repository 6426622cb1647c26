"""The admin site: the theme's, with the dashboard's pages and one search for Ctrl-K and the search page."""

from __future__ import annotations

import logging
import math
from http import HTTPStatus
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template import loader
from django.urls import URLPattern
from unfold.sites import UnfoldAdminSite

from nexus.core.access import runs_others_programs
from nexus.web.login import Throttle, is_token_login

log = logging.getLogger(__name__)

NAME_SHOWN = 80  # characters of a name from an untrusted request
THROTTLE = Throttle()  # the hub checks passwords on one thread (see nexus_site.asgi)


class NexusAdminSite(UnfoldAdminSite):  # type: ignore[misc]  # the theme ships no types
    """Every page is behind `admin_view`, which requires a login or a direct local request (see middleware)."""

    enable_nav_sidebar = True

    def extra_urls(self) -> list[URLPattern]:
        """Return the URLs of the dashboard's pages, which come before the models' own."""
        from nexus.dashboard.urls import moved, pages

        return [*moved(), *pages(self)]  # an old address that is no id comes before the ids

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Show the home page."""
        from nexus.dashboard.views.home import home

        return home(request)

    def login(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Show the login. If a local request is not enough, it says what is."""
        peer, name = request.META.get("REMOTE_ADDR") or "unknown", request.POST.get("username", "")
        password = request.POST.get("password")
        is_try = request.method == "POST" and bool(password)
        if is_try and not is_token_login(name, password) and (seconds := THROTTLE.wait(peer, name)):
            THROTTLE.refused += 1
            return _too_early(math.ceil(seconds))
        answer: HttpResponseBase = super().login(
            request, {**(extra_context or {}), "runs_others_programs": runs_others_programs()}
        )
        if is_try and answer.status_code == HTTPStatus.FOUND:
            THROTTLE.forget(peer, name)
        elif is_try:
            THROTTLE.add_failure(peer, name)
            log.warning("A login from %s as %s failed.", peer, ascii(name[:NAME_SHOWN]))
        return answer

    def logout(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """End a login, if there is one."""
        if getattr(request, "is_local_operator", False):
            messages.info(request, "You are here without a login, so there is none to end.")
            return redirect("admin:index")
        answer: HttpResponseBase = super().logout(request, extra_context)
        return answer

    def search(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        """Show the results for Ctrl-K. The theme's own search caches for minutes, which a live board may not."""
        from nexus.dashboard.views.search import palette

        return palette(request)


def _too_early(seconds: int) -> HttpResponse:
    page = loader.render_to_string("429.html", {"seconds": seconds})
    return HttpResponse(page, status=HTTPStatus.TOO_MANY_REQUESTS, headers={"Retry-After": str(seconds)})
