"""Ids that sort in the order they were made: a prefix and a UUIDv7."""

from __future__ import annotations

from datetime import UTC, datetime

import uuid_utils


def new_id(prefix: str) -> str:
    """A server-assigned id: the prefix and a UUIDv7, so that ids sort in the order they were made."""
    return f"{prefix}_{uuid_utils.uuid7().hex}"


def id_floor(prefix: str, moment: datetime) -> str:
    """The lowest id that `new_id` makes at a moment: ids carry their time, so an id range is a time range."""
    return f"{prefix}_{max(int(moment.timestamp() * 1000), 0):012x}"


def time_of_id(identifier: str) -> datetime:
    """When an id of `new_id` was made, to the millisecond."""
    return datetime.fromtimestamp(int(identifier.partition("_")[2][:12], 16) / 1000, UTC)
