"""The first operator of a server that is bound beyond loopback."""

from __future__ import annotations

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.models import User

from coordination.models import AgentKey, Event
from coordination.services.operators import create_first
from tests.conftest import Call


def test_it_creates_an_operator_once_who_can_log_in(db: None) -> None:
    made = create_first()
    assert made is not None
    name, password = made
    user = authenticate(username=name, password=password)
    assert user is not None and user.is_staff
    assert create_first() is None
    assert password not in str(list(Event.objects.values()))


def test_it_creates_none_where_a_key_was_issued(call: Call) -> None:
    call("agent_register", agent_id="ana")
    AgentKey.objects.create(agent_id="ana", key_hash="x", created_at="2026-01-01T00:00Z")
    assert create_first() is None


@pytest.mark.parametrize("password", ["!", "secret"])
def test_it_counts_an_account_only_when_one_can_log_in_to_it(db: None, password: str) -> None:
    User.objects.create_superuser("local", password=None if password == "!" else password)
    assert (create_first() is None) == (password == "secret")
