"""Repair of times that a fast clock wrote. The apps whose leases and waits can be affected register here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple

from django.db import OperationalError

from nexus.core.clock import now
from nexus.core.database.sql import Read, Write
from nexus.core.database.store import store, write

AHEAD_SECONDS = 3600  # a time further ahead than this was written by a wrong clock
SKEW = timedelta(minutes=1)  # the clocks of machines that share a store may differ by this much
INSTANT = timedelta(microseconds=1)  # a lease ends strictly after its last moment


class _Lease(NamedTuple):
    table: str
    among: str
    field: str
    longest: Callable[[], int]
    ends: str
    later: str  # `field` where no other was registered

    def bound(self, moment: datetime) -> datetime:
        """Return the latest moment that a correct clock can have given."""
        return moment + timedelta(seconds=self.longest()) + SKEW

    def late(self, name: str) -> str:
        """Return the condition that no correct clock can have given a lease: its end is after the value `name`."""
        return f"{self.among} AND {self.field} > %({name})s AND {self.later} > %({name})s"


_registered: dict[str, _Lease] = {}


def register(
    name: str,
    table: str,
    field: str,
    longest: Callable[[], int],
    *,
    among: str = "TRUE",
    ends: str | None = None,
    later: str | None = None,
) -> None:
    """Register a table of leases, the column with their end, and the longest lease in seconds. `among` is the condition
    of a partial index, in SQL.

    Where leases have no maximum, `field` is the time of the beginning, `longest` AHEAD_SECONDS, and `ends` the
    column with the end. `later` is a column with an index whose time is never before that of `field`.
    """
    _registered[name] = _Lease(table, among, field, longest, ends or field, later or field)
    _late_kinds.cache_clear()
    _end.cache_clear()


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
                    _end(name)(**bounds, end=moment - INSTANT)
        except OperationalError:
            return


@cache
def _late_kinds() -> Read[tuple[str]]:
    """Return the read that finds the kinds with such leases, given the bound of each. It is one statement: between two
    statements a thread may wait for the interpreter."""
    late = {name: f"FROM {lease.table} WHERE {lease.late(name)}" for name, lease in _registered.items()}
    return Read(" UNION ".join(f"SELECT '{name}' {rows}" for name, rows in late.items()))


@cache
def _end(name: str) -> Write:
    """Return the statement that ends the leases of a kind, given its bound, at `end`."""
    lease = _registered[name]
    ends = "".join(f", {field} = %(end)s" for field in {lease.ends} - {lease.field})
    return Write(f"UPDATE {lease.table} SET {lease.field} = %(end)s{ends} WHERE {lease.late(name)}")  # noqa: S608
