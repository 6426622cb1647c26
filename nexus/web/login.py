"""Login with this run's token in place of a password, for anyone who can read the hub's home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib.auth.backends import ModelBackend
from django.http import HttpRequest

from nexus.core.access import is_operators_token
from nexus.core.operations.caller import LOCAL_OPERATOR

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LOCAL_RIGHTS = {"is_staff": True, "is_superuser": True, "password": "!"}  # no password hashes to "!"


class ByToken(ModelBackend):
    """Log in as `local`, the account of local operators."""

    def authenticate(
        self, request: HttpRequest | None, username: str | None = None, password: str | None = None, **more: Any
    ) -> User | None:
        """Return the account if the password is the token, otherwise None."""
        if username != LOCAL_OPERATOR or not is_operators_token((password or "").strip()):
            return None
        return local_account()


def local_account() -> User:
    """Return the account of local requests; it has no usable password. Raises the store's errors."""
    from django.contrib.auth.models import User

    return (
        User.objects.filter(username=LOCAL_OPERATOR).first()
        or User.objects.get_or_create(username=LOCAL_OPERATOR, defaults=LOCAL_RIGHTS)[0]
    )
