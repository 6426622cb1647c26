"""The states of a delivery, and its lease: total functions over plain values (docs/explanation/delivery.md).

unread ──pull──▶ delivered ──ack──▶ read
          ▲           │ lease lapses
          └───────────┤
                      └─ pulled the most times allowed ──▶ parked
"""

from __future__ import annotations

from datetime import datetime

MAX_ATTEMPTS = 5  # a delivery is handed out at most this often; the next claim parks it
MIN_LEASE_SECONDS, MAX_LEASE_SECONDS = 10, 3600


def lapsed(lease_expires_at: datetime | None, now: datetime) -> bool:
    """Return whether a lease ended strictly before `now`."""
    return lease_expires_at is not None and lease_expires_at < now


def effective(status: str, lease_expires_at: datetime | None, now: datetime) -> str:
    """Return the current status of a delivery: in flight with an expired lease counts as unread."""
    return "unread" if status == "delivered" and lapsed(lease_expires_at, now) else status


def exhausted(attempts: int) -> bool:
    """Return whether the next pull parks the delivery instead of delivering it."""
    return attempts >= MAX_ATTEMPTS


def clamp_lease(seconds: int) -> int:
    """Limit a requested lease to 10 to 3600 seconds."""
    return max(MIN_LEASE_SECONDS, min(seconds, MAX_LEASE_SECONDS))


def why_not_extendable(status: str | None, lease_expires_at: datetime | None, now: datetime) -> str | None:
    """Return why a lease cannot be renewed; None when it can. `status` is None for a message not in this inbox."""
    match status:
        case None:
            return "not in your inbox"
        case "unread":
            return "never pulled"
        case "read":
            return "already acknowledged"
        case "parked":
            return "parked after too many attempts"
    return "lease already expired; pull it again" if lapsed(lease_expires_at, now) else None
