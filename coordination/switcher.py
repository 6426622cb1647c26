"""The workspace that an operator chose in the header. Pages that can show one workspace alone follow the choice.

The choice is in the URL of such a page (`?workspace=`), and remembered in a cookie for the next one.
"""

from __future__ import annotations

from functools import cache
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.deprecation import MiddlewareMixin

from coordination.models import Workspace
from nexus.core.apps import nexus_apps

COOKIE, KEPT_SECONDS = "nexus_workspace", 365 * 24 * 3600


class ChosenWorkspace(MiddlewareMixin):
    """Redirect a page that is asked for without a query to the chosen workspace, and remember a choice in the URL."""

    def process_view(self, request: HttpRequest, *view: object) -> HttpResponse | None:
        if request.method != "GET" or request.GET or not follows(request) or not request.user.is_authenticated:
            return None
        workspace = chosen_workspace(request)
        return redirect(f"{request.path}?{urlencode({'workspace': workspace.pk})}") if workspace else None

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        # A page that refreshes itself in another tab is no choice of the operator.
        by_script = request.headers.get("X-Requested-With") == "fetch"
        if by_script or response.status_code != 200 or "workspace" not in request.GET or not follows(request):
            return response
        path = reverse("admin:index")
        if workspace := chosen_workspace(request):
            response.set_cookie(COOKIE, workspace.pk, KEPT_SECONDS, path=path, httponly=True, samesite="Lax")
        elif not request.GET["workspace"]:
            response.delete_cookie(COOKIE, path=path, samesite="Lax")
        return response


def follows(request: HttpRequest) -> bool:
    """Return whether a request is for a page that can show one workspace alone."""
    match = request.resolver_match
    return match is not None and match.namespace == "admin" and match.url_name in _following()


@cache
def _following() -> frozenset[str]:
    return frozenset({"index", *(page.name for app in nexus_apps() for page in app.pages() if page.by_workspace)})


def chosen_workspace(request: HttpRequest) -> Workspace | None:
    """Return the chosen workspace: that of the URL, or the remembered one; None if it is every one. With a query, a
    page that follows shows what its URL says, so the remembered one does not count. It is read once for a request."""
    if not hasattr(request, "chosen_workspace"):
        by_url = bool(request.GET) and follows(request)
        found = find_workspace(request.GET.get("workspace", "") if by_url else request.COOKIES.get(COOKIE, ""))
        request.chosen_workspace = found  # type: ignore[attr-defined]
    return request.chosen_workspace  # type: ignore[attr-defined, no-any-return]


def find_workspace(workspace_id: str) -> Workspace | None:
    """Return the workspace of an id from a browser; None if there is none."""
    if not workspace_id or "\x00" in workspace_id:
        return None
    return Workspace.objects.filter(pk=workspace_id).first()
