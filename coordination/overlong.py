"""Times that a clock which was ahead left behind: the apps whose leases and waits they are register here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import OperationalError
from django.db.models import QuerySet

from nexus.core.clock import now
from nexus.core.database.store import store, write

AHEAD_SECONDS = 3600  # what began later than in so long was begun by a wrong clock, whatever time it was given
SKEW = timedelta(minutes=1)  # by which the clocks of machines that share a store may differ
INSTANT = timedelta(microseconds=1)  # a lease has ended strictly after its last moment


class _Lease(NamedTuple):
    rows: Callable[[], QuerySet[Any]]
    field: str
    longest: Callable[[], int]
    ends: str

    def late(self, moment: datetime) -> QuerySet[Any]:
        """The leases that no right clock can have given."""
        return self.rows().filter(**{f"{self.field}__gt": moment + timedelta(seconds=self.longest()) + SKEW})


_registered: dict[str, _Lease] = {}


def register(
    name: str, rows: Callable[[], QuerySet[Any]], field: str, longest: Callable[[], int], *, ends: str | None = None
) -> None:
    """Name the rows that hold a lease, the field with its end, and the longest lease in seconds.

    Where no lease is the longest, `field` is when it began, `longest` AHEAD_SECONDS, and `ends` the field with its end.
    """
    _registered[name] = _Lease(rows, field, longest, ends or field)


def end_overlong() -> None:
    """End every lease that ends later than the longest one that begins now. A small read for each kind where there is
    none; while another process holds the store, the next call ends them."""
    moment = now()
    found = [lease for lease in _registered.values() if lease.late(moment).exists()]
    if not found:
        return
    with store().without_waiting():
        try:
            with write():
                for lease in found:
                    lease.late(moment).update(**dict.fromkeys((lease.field, lease.ends), moment - INSTANT))
        except OperationalError:
            return
