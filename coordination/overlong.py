"""Repair of times that a fast clock wrote. The apps whose leases and waits can be affected register here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db import OperationalError
from django.db.models import QuerySet, TextField, Value

from nexus.core.clock import now
from nexus.core.database.store import store, write

AHEAD_SECONDS = 3600  # a time further ahead than this was written by a wrong clock
SKEW = timedelta(minutes=1)  # the clocks of machines that share a store may differ by this much
INSTANT = timedelta(microseconds=1)  # a lease ends strictly after its last moment


class _Lease(NamedTuple):
    rows: Callable[[], QuerySet[Any]]
    field: str
    longest: Callable[[], int]
    ends: str

    def late(self, moment: datetime) -> QuerySet[Any]:
        """Return the leases that no correct clock can have given."""
        return self.rows().filter(**{f"{self.field}__gt": moment + timedelta(seconds=self.longest()) + SKEW})


_registered: dict[str, _Lease] = {}


def register(
    name: str, rows: Callable[[], QuerySet[Any]], field: str, longest: Callable[[], int], *, ends: str | None = None
) -> None:
    """Register the rows that hold a lease, the field with its end, and the longest lease in seconds.

    Where leases have no maximum, `field` is the time of the beginning, `longest` AHEAD_SECONDS, and `ends` the
    field with the end.
    """
    _registered[name] = _Lease(rows, field, longest, ends or field)


def end_overlong() -> None:
    """End every lease that ends later than the longest one that could begin now. Where there is none, it costs one
    read. While another process writes, it does nothing: the next call ends them."""
    moment = now()
    found = [_registered[name] for name in _late_names(moment)]
    if not found:
        return
    with store().without_waiting():
        try:
            with write():
                for lease in found:
                    lease.late(moment).update(**dict.fromkeys((lease.field, lease.ends), moment - INSTANT))
        except OperationalError:
            return


def _late_names(moment: datetime) -> list[str]:
    """Return the kinds that have such leases, by one statement: between two statements a thread may wait for the
    interpreter."""
    if not _registered:
        return []
    first, *others = (
        lease.late(moment).order_by().values_list(Value(name, TextField()), flat=True)
        for name, lease in _registered.items()
    )
    return list(first.union(*others))
