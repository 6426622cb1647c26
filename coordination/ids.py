"""Ids that sort in order of creation: a prefix and a UUIDv7."""

from __future__ import annotations

from datetime import UTC, datetime

import uuid_utils


def new_id(prefix: str) -> str:
    """Return a new id: the prefix and a UUIDv7, so that ids sort in order of creation."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"


def id_floor(prefix: str, moment: datetime) -> str:
    """Return the lowest id that `new_id` makes at a moment. Ids contain their time, so a range of ids is a range of
    time."""
    return f"{prefix}_{max(int(moment.timestamp() * 1000), 0):012x}"


def time_of_id(identifier: str) -> datetime:
    """Return when `new_id` made an id, to the millisecond."""
    return datetime.fromtimestamp(int(identifier.partition("_")[2][:12], 16) / 1000, UTC)
