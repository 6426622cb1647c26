"""The operator behind a page's request, and the policy of what a page may load."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.template import loader
from django.utils.deprecation import MiddlewareMixin

from nexus.core.access import AccessDenied, ConnectionInfo, identify, recognise_session
from nexus.core.database.store import store
from nexus.core.operations.caller import LOCAL_OPERATOR
from nexus.core.operations.errors import NexusError
from nexus.web.login import LOCAL_RIGHTS, local_account
from nexus.web.markdown import begin_page

log = logging.getLogger(__name__)

# The theme's Alpine compiles the expressions in its templates, hence 'unsafe-eval'; the theme sets its colours in a
# style element, hence 'unsafe-inline' for styles. No inline script runs, and nothing comes from another host.
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    ]
)


class LocalOperator(MiddlewareMixin):
    """Admit a direct local request to the admin without a login while the server is bound to loopback.

    The user is set for this request only and never put in a session, so that a server that is later bound elsewhere
    trusts no earlier visitor. CSRF protection stays.
    """

    def process_request(self, request: HttpRequest) -> HttpResponse | None:
        if not request.path_info.startswith("/admin/"):
            return None
        try:
            if request.user.is_authenticated:
                recognise_session(request.session.session_key)
            elif settings.NEXUS_TRUSTS_LOCAL and _is_local(request):
                request.user = _local_user(request)
                request.is_local_operator = True  # type: ignore[attr-defined]
        except (DatabaseError, NexusError) as error:  # process_exception does not get their errors
            if (page := _page_of(request, error)) is None:
                raise
            return page
        return None


class StoreTrouble(MiddlewareMixin):
    """Show a message when the store accepts no writes, and an error page when it cannot be read either."""

    def process_view(self, request: HttpRequest, *view: Any) -> None:
        if problem := getattr(request, "store_problem", None):
            messages.warning(request, f"You can look, and change nothing now. {problem}")

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        return _page_of(request, exception)


class MarkdownBudget(MiddlewareMixin):
    """Give each page one budget for its Markdown."""

    def process_request(self, request: HttpRequest) -> None:
        begin_page()


class ContentSecurityPolicy(MiddlewareMixin):
    """Set the policy on every page that has none of its own."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


def _page_of(request: HttpRequest, exception: Exception) -> HttpResponse | None:
    """Return the page for a documented error; None for other errors, and for requests outside of the dashboard."""
    known = store().failure(exception) if isinstance(exception, DatabaseError) else exception
    if not isinstance(known, NexusError) or not request.path_info.startswith("/admin/"):
        return None
    log.warning("%s could not be made: %s", request.path, known.message)
    page = loader.render_to_string("500.html", {"problem": known.message})
    return HttpResponse(page, status=known.code.status)


def _is_local(request: HttpRequest) -> bool:
    try:
        return identify(ConnectionInfo.of_request(request), transport="admin").operator == LOCAL_OPERATOR
    except AccessDenied:
        return False


def _local_user(request: HttpRequest) -> Any:
    """Return the account of local requests. If it cannot be stored (for example on a full disk), it is for this request
    alone, and the page says what is wrong."""
    from django.contrib.auth.models import User

    try:
        return local_account()
    except (DatabaseError, NexusError) as error:
        known = error if isinstance(error, NexusError) else store().failure(error)
        problem = known.message if known else "The store refuses to be written; the hub's log has the cause."
        request.store_problem = problem  # type: ignore[attr-defined]
        return User(username=LOCAL_OPERATOR, **LOCAL_RIGHTS)
