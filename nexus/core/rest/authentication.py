"""Authentication for Django REST framework."""

from __future__ import annotations

from typing import Any, cast

from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from nexus.core.access import ConnectionInfo, identify
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError


class CallerAuthentication(BaseAuthentication):
    """Set `request.auth` to the Caller; refuse an unidentified connection before any view runs."""

    def authenticate(self, request: Request) -> tuple[Any, Caller]:
        plain = request._request
        try:
            return getattr(plain, "user", None), identify(ConnectionInfo.of_request(plain), transport="rest")
        except NexusError:
            cast(Any, request)._not_authenticated()  # so that rendering the refusal does not ask again
            raise
