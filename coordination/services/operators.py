"""Operators' accounts: Django's users. Members of the staff may log in to the admin."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from django.core.exceptions import ValidationError
from django.db import IntegrityError

from coordination.models import AgentKey
from coordination.services import audit
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid, not_found

if TYPE_CHECKING:
    from django.contrib.auth.models import Group, User

FIRST = "operator"
VIEWERS = "viewers"  # the group of accounts that see everything and do nothing


def create_first() -> tuple[str, str] | None:
    """Create a first operator, so that a server bound beyond loopback locks nobody out; return name and password.

    Does nothing and returns None where an API key has been issued or an account can log in. The password is shown only
    here.
    """
    from django.contrib.auth.models import User  # an agent's stdio process does not import it

    password, moment = _new_password(), now()
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


def create(*, name: str, viewer: bool = False, operator: str) -> str:
    """Create an account that may log in and do everything, or as a viewer see everything; return its password, which is
    shown only here.

    Raises VALIDATION_ERROR for a name that is taken or that no account may have.
    """
    from django.contrib.auth.models import User

    validator = User._meta.get_field("username")
    password, moment = _new_password(), now()
    try:
        validator.run_validators(name)
    except ValidationError as error:
        raise invalid(f"operator: {error.messages[0]}", field="operator") from None
    try:
        with write():
            user = User.objects.create_user(name, password=password, is_staff=True, is_superuser=not viewer)
            set_group(user)
            audit.record(operator, "operator.created", moment, name=name)
    except IntegrityError:
        raise invalid(
            f"There is an operator {name!r} already: operator_password_reset lets one in again.", field="operator"
        ) from None
    return password


def set_group(user: User) -> None:
    """Put an account into the group of viewers, or out of it, by its right to act."""
    if user.is_staff and not user.is_superuser:
        user.groups.add(viewers())
    else:
        user.groups.remove(*user.groups.filter(name=VIEWERS))


def viewers() -> Group:
    """Return the group of viewers, who may see the rows of every model."""
    from django.contrib.auth.models import Group, Permission

    group, _ = Group.objects.get_or_create(name=VIEWERS)
    group.permissions.set(Permission.objects.filter(codename__startswith="view_"))
    return group


def reset_password(*, name: str, operator: str) -> str:
    """Return a new password for an account, which is shown only here; end sessions under the old one. Raises
    NOT_FOUND."""
    from django.contrib.auth.models import User

    password, moment = _new_password(), now()
    with write():
        user = User.objects.filter(username=name).first()
        if user is None:
            raise not_found("operator", name)
        user.set_password(password)
        user.save(update_fields=["password"])
        audit.record(operator, "operator.password_reset", moment, name=name)
    return password


def accounts() -> list[User]:
    """Return every account, oldest first."""
    from django.contrib.auth.models import User

    return list(User.objects.order_by("date_joined", "pk"))


def _new_password() -> str:
    return secrets.token_urlsafe(24)
