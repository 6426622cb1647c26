"""Faults of a model's provider: how an error is classified, and how long to wait after one. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FaultKind(StrEnum):
    """The kind of a provider's fault."""

    OVERLOADED = "overloaded"  # or it limits the rate
    FAILING = "failing"  # an error of its own
    UNREACHABLE = "unreachable"  # the network, or no answer
    QUOTA = "quota"  # nothing is left of what was paid for
    KEY = "key"  # it refuses the key, or there is none


PASSING = (FaultKind.OVERLOADED, FaultKind.FAILING, FaultKind.UNREACHABLE)  # they pass by themselves
FIRST_WAIT, LONGEST_WAIT = 10.0, 900.0  # seconds, if the provider names no time
SHORTEST_NAMED, LONGEST_NAMED = 1.0, 3_600.0  # bounds of a time that it names
NAMED = {  # in an error's data: `errorKind` of claude-agent-acp, `codexErrorInfo` of codex-acp
    "authentication_failed": FaultKind.KEY,
    "unauthorized": FaultKind.KEY,
    "billing_error": FaultKind.QUOTA,
    "usageLimitExceeded": FaultKind.QUOTA,
    "rate_limit": FaultKind.OVERLOADED,
    "overloaded": FaultKind.OVERLOADED,
    "serverOverloaded": FaultKind.OVERLOADED,
    "server_error": FaultKind.FAILING,
    "internalServerError": FaultKind.FAILING,
    "httpConnectionFailed": FaultKind.UNREACHABLE,
    "responseStreamConnectionFailed": FaultKind.UNREACHABLE,
    "responseStreamDisconnected": FaultKind.UNREACHABLE,
    "responseTooManyFailedAttempts": FaultKind.UNREACHABLE,
}


@dataclass(frozen=True)
class Fault:
    """A fault of a provider, and the seconds that it asks to wait; None if it names no time."""

    kind: FaultKind
    retry_after: float | None = None


def of_status(status: int) -> FaultKind | None:
    """Return the kind of fault of an HTTP status."""
    if status == 402:
        return FaultKind.QUOTA
    if status in (401, 403):
        return FaultKind.KEY
    if status in (429, 503, 529):
        return FaultKind.OVERLOADED
    return FaultKind.FAILING if 500 <= status < 600 or status in (408, 409, 425) else None


def of_error(code: int, data: Any) -> FaultKind | None:
    """Return the kind of fault of an agent process's error, by its code and its data, never by its text.

    Some agents take the code from HTTP; their 500 stands for any error.
    """
    named = None
    if isinstance(data, dict):
        named = data.get("errorKind", data.get("codexErrorInfo"))
    if isinstance(named, dict):  # codex-acp: the name, and the status behind it
        named, more = next(iter(named.items()), (None, None))
        status = more.get("httpStatusCode") if isinstance(more, dict) else None
        if isinstance(status, int) and (kind := of_status(status)) is not None:
            return kind
    kind = NAMED.get(named) if isinstance(named, str) else None
    return kind or (of_status(code) if code != 500 else None)


def seconds_to_wait(fault: Fault, failures: int) -> float:
    """Return the seconds until the next try, after so many failures in a row: the provider's time if it names one."""
    if fault.retry_after is not None:
        return min(max(fault.retry_after, SHORTEST_NAMED), LONGEST_NAMED)
    if fault.kind not in PASSING:
        return LONGEST_WAIT
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 20), LONGEST_WAIT)
