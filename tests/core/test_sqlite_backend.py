"""What our backend for SQLite does in a way of its own comes out as Django has it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from django.db.backends.sqlite3 import base
from django.db.models import DateTimeField
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.database.sqlite.backend.base import Cursor
from nexus.core.database.store import store

pytestmark = [pytest.mark.django_db, pytest.mark.skipif(connection.vendor != "sqlite", reason="on SQLite alone")]

MOMENTS = st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2900, 1, 1))  # a zone is added
ZONES = st.sampled_from([UTC, timezone(timedelta(0)), timezone(timedelta(hours=5, minutes=30))])


@given(MOMENTS, ZONES)
def test_it_stores_a_moment_as_django_does(naive: datetime, zone: timezone) -> None:
    moment = naive.replace(tzinfo=zone)
    assert store().moment(moment) == DateTimeField().get_db_prep_save(moment, connection)


@given(st.lists(st.sampled_from(["%s", "%%", "%%s", "a ", "'", "\n"])).map("".join))
def test_it_writes_parameters_as_django_does(query: str) -> None:
    ours: Any = Cursor.convert_query
    theirs: Any = base.SQLiteCursorWrapper.convert_query
    assert ours(None, query) == ours(None, query) == theirs(None, query)
