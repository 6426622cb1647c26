"""Who the operator is on a page, and what a page may load."""

from __future__ import annotations

import contextlib
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

from core.access import LOCAL_OPERATOR, Approach, Refused, identify

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
    """A direct local request opens the admin without a login while the server is bound to loopback.

    The user is set for this request only and never put in a session: a server bound elsewhere later trusts nobody
    for having been here. CSRF protection stays.
    """

    def process_request(self, request: HttpRequest) -> None:
        if not settings.NEXUS_TRUSTS_LOCAL or not request.path.startswith("/admin/") or request.user.is_authenticated:
            return
        with contextlib.suppress(Refused):
            if identify(Approach.of_request(request), transport="admin").operator == LOCAL_OPERATOR:
                request.user = _local_user()


class ContentSecurityPolicy(MiddlewareMixin):
    """The policy on every page that has none of its own."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response


def _local_user() -> Any:
    """The account behind local requests; it has no usable password, so nobody can log in as it."""
    from django.contrib.auth.models import User

    user = User.objects.filter(username=LOCAL_OPERATOR).first()
    if user is None:
        user, _ = User.objects.get_or_create(
            username=LOCAL_OPERATOR, defaults={"is_staff": True, "is_superuser": True, "password": "!"}
        )
    return user
