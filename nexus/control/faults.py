"""Faults of a model's provider: how an error is classified, and how long to wait after one. Pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """The kind of a provider's fault."""

    OVERLOADED = "overloaded"  # or it limits the rate
    FAILING = "failing"  # an error of its own
    UNREACHABLE = "unreachable"  # the network, or no answer; also of the machine that a runner starts its program on
    QUOTA = "quota"  # nothing is left of what was paid for
    KEY = "key"  # it refuses the key, or there is none


PASSING = (FaultKind.OVERLOADED, FaultKind.FAILING, FaultKind.UNREACHABLE)  # they pass by themselves
FIRST_WAIT, LONGEST_WAIT = 10.0, 900.0  # seconds, if the provider names no time
SHORTEST_NAMED, LONGEST_NAMED = 1.0, 7 * 86_400.0  # bounds of a time that it names
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0}
LONGEST_TEXT = 10_000  # characters of an error that are read

NOTHING_LEFT = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|billing|payment required|usage limit|hit your limit"
    r"|out of credits|usageLimitExceeded|quota exceeded",
    re.IGNORECASE,
)
STATUS = re.compile(
    r"(?:\bAPI Error(?:: Request rejected)?|\bHTTP(?:/[\d.]+)?|\b(?:last )?status(?:[ _-]?code)?|\bcode|\berror)"
    r"\W{0,4}(?:of |was |code )?([45]\d\d)\b"
    r"|\b([45]\d\d)(?=:| (?:too many|service un|internal s|unauth|bad g|gateway|payment|forbidden|overl))",
    re.IGNORECASE,
)
WORDS = (
    (
        FaultKind.KEY,
        r"(?:invalid|incorrect|missing|expired|no)[ _]?(?:x-)?api[ _-]?key|api[ _-]?key (?:not valid|expired)"
        r"|authentication[_ ](?:error|failed|required)|\bunauthori[sz]ed\b|please run /login|not logged in",
    ),
    (
        FaultKind.OVERLOADED,
        r"overloaded|rate[ _-]?limit|too many requests|resource_exhausted|at capacity|experiencing high demand",
    ),
    (FaultKind.FAILING, r"internal server error|bad gateway|service unavailable|gateway time-?out|server_error"),
    (
        FaultKind.UNREACHABLE,
        r"econn(?:refused|reset|aborted)|enotfound|etimedout|eai_again|epipe|fetch failed|socket hang ?up"
        r"|(?:connection|network) (?:error|refused|reset|closed|failed)|unable to connect|stream disconnected"
        r"|error sending request|connection was closed|request timed out|^terminated\b",
    ),
)
KINDS = tuple((kind, re.compile(words, re.IGNORECASE)) for kind, words in WORDS)
ANSWERED = re.compile(  # codex-acp
    r"(?:exceeded retry limit, last status: \d{3}|We.re currently experiencing high demand, which may cause temporary"
    r" errors|stream disconnected before completion|Selected model is at capacity).{0,200}\s*\Z"
)
NAMED = re.compile(
    r"(?:retry[-_ ]?(?:after|delay)|try again in|retry in|wait|available in)\W{0,6}(?:seconds\W{1,3})?"
    r"(\d{1,9}(?:\.\d{1,6})?)\s{0,2}(ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|h)?\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fault:
    """A fault of a provider, and the seconds that it asks to wait; None if it names no time."""

    kind: FaultKind
    retry_after: float | None = None


def of_status(status: int, text: str = "") -> FaultKind | None:
    """Return the kind of fault of an HTTP status; `text` tells an empty account from a limit on the rate."""
    if status == 402 or (status in (400, 403, 429) and NOTHING_LEFT.search(text[:LONGEST_TEXT])):
        return FaultKind.QUOTA
    if status in (401, 403):
        return FaultKind.KEY
    if status in (429, 503, 529):
        return FaultKind.OVERLOADED
    return FaultKind.FAILING if status >= 500 or status in (408, 409, 425) else None


def of_text(text: str, code: int = 0) -> Fault | None:
    """Return the fault that an agent process's error tells of; None if it does not look like one of a provider.

    `code` is the error's own, which some agents take from HTTP; their 500 stands for any error.
    """
    text = text[:LONGEST_TEXT]
    found = STATUS.search(text)
    status = int(found[1] or found[2]) if found else code
    kind = of_status(status, text) if found or status != 500 else None
    if kind is None and NOTHING_LEFT.search(text):
        kind = FaultKind.QUOTA
    if kind is None:
        kind = next((each for each, words in KINDS if words.search(text)), None)
    return None if kind is None else Fault(kind, named_wait(text))


def of_answer(text: str) -> Fault | None:
    """Return the fault that an agent process gives as its answer, as if the turn had ended well."""
    return of_text(text) if ANSWERED.match(text) else None


def named_wait(text: str) -> float | None:
    """Return the seconds that an error's text asks to wait."""
    found = NAMED.search(text[:LONGEST_TEXT])
    if found is None:
        return None
    unit = (found[2] or "s").lower()
    return float(found[1]) * UNITS["ms" if unit.startswith(("ms", "mil")) else unit[0]]


def seconds_to_wait(fault: Fault, failures: int) -> float:
    """Return the seconds until the next try, after so many failures in a row: the provider's time if it names one."""
    if fault.retry_after is not None:
        return min(max(fault.retry_after, SHORTEST_NAMED), LONGEST_NAMED)
    if fault.kind is FaultKind.QUOTA:
        return LONGEST_WAIT
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 20), LONGEST_WAIT)
