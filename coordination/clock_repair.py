"""Repair of times that a fast clock wrote. The apps whose leases and waits can be affected register here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from django.db import OperationalError
from django.db.models import QuerySet, TextField, Value

from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot
from nexus.core.database.store import store, write

AHEAD_SECONDS = 3600  # a time further ahead than this was written by a wrong clock
SKEW = timedelta(minutes=1)  # the clocks of machines that share a store may differ by this much
INSTANT = timedelta(microseconds=1)  # a lease ends strictly after its last moment


class _Lease(NamedTuple):
    rows: Callable[[], QuerySet[Any]]
    field: str
    longest: Callable[[], int]
    ends: str
    later: str  # `field` where no other was registered

    def bound(self, moment: datetime) -> datetime:
        """Return the latest moment that a correct clock can have given."""
        return moment + timedelta(seconds=self.longest()) + SKEW

    def late(self, bound: datetime | Slot) -> QuerySet[Any]:
        """Return the leases that no correct clock can have given."""
        return self.rows().filter(**{f"{field}__gt": bound for field in (self.field, self.later)})


_registered: dict[str, _Lease] = {}


def register(
    name: str,
    rows: Callable[[], QuerySet[Any]],
    field: str,
    longest: Callable[[], int],
    *,
    ends: str | None = None,
    later: str | None = None,
) -> None:
    """Register the rows that hold a lease, the field with its end, and the longest lease in seconds.

    Where leases have no maximum, `field` is the time of the beginning, `longest` AHEAD_SECONDS, and `ends` the
    field with the end. `later` is a field with an index whose time is never before that of `field`.
    The search is prepared once, so `rows` must not depend on the time.
    """
    _registered[name] = _Lease(rows, field, longest, ends or field, later or field)
    _late_kinds.cache_clear()


def end_overlong() -> None:
    """End every lease that ends later than the longest one that could begin now. Where there is none, it costs one
    read. While another process writes, it does nothing: the next call ends them."""
    moment = now()
    bounds = {name: lease.bound(moment) for name, lease in _registered.items()}
    found = [name for (name,) in _late_kinds()(**bounds)] if bounds else []
    if not found:
        return
    with store().without_waiting():
        try:
            with write():
                for name in found:
                    lease = _registered[name]
                    lease.late(bounds[name]).update(**dict.fromkeys((lease.field, lease.ends), moment - INSTANT))
        except OperationalError:
            return


@cache
def _late_kinds() -> Select[tuple[str]]:
    """Return the read that finds the kinds with such leases, given the bound of each. It is one statement: between two
    statements a thread may wait for the interpreter."""

    def kinds() -> QuerySet[Any, tuple[str]]:
        first, *others = (
            lease.late(Slot(name)).order_by().values_list(Value(name, TextField()))
            for name, lease in _registered.items()
        )
        return first.union(*others)

    return Select(kinds)
