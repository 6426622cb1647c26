"""Authentication for Django REST framework."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import AnonymousUser
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request

from nexus.core.access import ConnectionInfo, identify
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError


class CallerAuthentication(SessionAuthentication):
    """Set `request.auth` to the Caller; refuse an unidentified connection before any view runs."""

    def authenticate(self, request: Request) -> tuple[Any, Caller]:
        user, _ = super().authenticate(request) or (AnonymousUser(), None)
        try:
            return user, identify(ConnectionInfo.of_request(request, user), transport="rest")
        except NexusError:
            request.user, request.auth = AnonymousUser(), None  # so that rendering the refusal does not ask again
            raise

    def enforce_csrf(self, request: Request) -> None:
        """Leave it to `identify`, which knows whether the caller came by its session."""
