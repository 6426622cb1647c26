"""The operators' accounts: Django's users, of whom the members of the staff may log in to the admin."""

from __future__ import annotations

import secrets

from coordination.models import AgentKey
from coordination.services import audit
from core.clock import now
from core.database import write

FIRST = "operator"


def create_first() -> tuple[str, str] | None:
    """The name and password of a first operator, so that a server bound beyond loopback locks nobody out.

    None, and nothing done, where an API key has been issued or an account can log in. The password is shown this once.
    """
    from django.contrib.auth.models import User  # an agent's stdio process does without it

    password, moment = secrets.token_urlsafe(24), now()
    with write():
        able = [user for user in User.objects.filter(is_active=True, is_staff=True) if user.has_usable_password()]
        if able or AgentKey.objects.exists():
            return None
        user, _ = User.objects.get_or_create(username=FIRST)
        user.is_staff = user.is_superuser = user.is_active = True
        user.set_password(password)
        user.save()
        audit.record(FIRST, "operator.created", moment)
    return FIRST, password
