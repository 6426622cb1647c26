"""The current time, and times as text: UTC, ISO 8601, always with microseconds, so that texts sort like times."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import overload

AHEAD = "NEXUS_CLOCK_AHEAD"  # for processes that this one starts: seconds
SAME_SECONDS = 1.0  # clocks that differ by less agree

_ahead = timedelta(seconds=float(os.environ.get(AHEAD, 0)))  # the clock that is followed, before this machine's


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC) + _ahead if _ahead else datetime.now(UTC)


def follow(moment: datetime) -> None:
    """Follow another clock, which shows `moment` now, in this process and in those that it starts from now on."""
    global _ahead
    ahead = (moment - datetime.now(UTC)).total_seconds()
    _ahead = timedelta(seconds=ahead if abs(ahead) >= SAME_SECONDS else 0)
    os.environ[AHEAD] = str(_ahead.total_seconds())


def iso_milliseconds(moment: datetime) -> str:
    """Return a time as other programs' files have it: `2026-01-31T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@overload
def iso(moment: datetime) -> str: ...
@overload
def iso(moment: None) -> None: ...
def iso(moment: datetime | None) -> str | None:
    """Return a time as `2026-01-31T12:00:00.000000Z`; None stays None."""
    if moment is None:
        return None
    utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{utc.isoformat(timespec='microseconds')[:-6]}Z"  # strftime takes four times as long
