"""What the ORM asks of each database in its own words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db.models import DateTimeField, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nexus.core.database.functions import Lasted

TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))


@pytest.mark.django_db
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(start=TIMES, end=TIMES)
def test_it_tells_to_the_millisecond_how_long_something_lasted(start: datetime, end: datetime) -> None:
    lasted = Lasted(Value(start, DateTimeField()), Value(end, DateTimeField()))
    (found,) = ContentType.objects.values_list(lasted)[0]
    assert isinstance(found, float) and found == pytest.approx((end - start).total_seconds(), rel=0, abs=0.0011)
