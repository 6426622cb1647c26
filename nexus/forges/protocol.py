"""What Nexus needs of a forge, and the values that it gets: one protocol, an implementation for each kind of forge.

All texts in these values were written by others. They are bounded here and quoted where agents read them.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

MAX_TEXT = 20_000  # characters of an issue's or a comment's text
MAX_LOG = 4_000  # characters of the end of a failed job's log
MAX_JOBS = 5  # failed jobs whose logs are read
MAX_ISSUES = 1_000  # read in one round; the next one goes on where it ended
MAX_COMMENTS = 100  # of a pull request, in one round
TIMEOUT_SECONDS = 15
PASSING = (408, 425)  # statuses below 500 of what goes through a little later, such as a proxy's timeout
MAY_NOT_WRITE = "who may not write to the repository"
RIGHTS_HIDDEN = "whose rights the token may not read"
LOG_BYTES, LOG_SECONDS = 50_000_000, 60  # that are read of one log, whose end is wanted


class ForgeError(Exception):
    """A call to a forge failed. `str(error)` is safe to show to an operator."""


class TokenRefused(ForgeError):
    """The token is wrong, revoked, expired, or lacks a permission."""


class Rejected(ForgeError):
    """The forge will not do it, however often it is asked."""


class NotThere(Rejected):
    """The repository, issue, pull request or comment does not exist, or the token may not see it."""


class Busy(ForgeError):
    """The forge asks to wait, because of its rate limit."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class PushInterrupted(ForgeError):
    """A push failed for a reason that may pass, such as a network that is away."""


@dataclass(frozen=True)
class IssueData:
    """An issue as it was at `updated_at`."""

    number: int
    title: str
    text: str
    author: str
    url: str
    labels: frozenset[str]
    assignees: frozenset[str]
    is_open: bool
    updated_at: datetime


@dataclass(frozen=True)
class Pull:
    """A pull or merge request as it was at `updated_at`."""

    number: int
    url: str
    state: str  # open, merged or closed
    head: str  # the commit of its branch
    updated_at: datetime
    text: str = ""  # its description


@dataclass(frozen=True)
class Job:
    """A failed job of CI, with the end of its log; empty where the forge has none."""

    key: str
    name: str
    url: str
    log: str


@dataclass(frozen=True)
class Checks:
    """CI's result for a commit."""

    state: str  # none, pending, passed or failed
    failed: Sequence[Job] = ()
    left_out: str = ""  # what was not read, and why


@dataclass(frozen=True)
class Comment:
    """A comment of a person; `path` and `line` where it is about a line."""

    key: str
    author: str
    text: str
    url: str
    is_refusal: bool = False  # a review that asks for changes
    path: str = ""
    line: int | None = None
    hunk: str = ""
    left_out: str = ""  # why an agent does not get it; empty for a person who may write to the repository


@dataclass(frozen=True)
class Watched:
    """The watched branch of a git remote as it was found."""

    commit: str
    merged: frozenset[str] = frozenset()  # of the heads that were asked for


class Client(Protocol):
    """Calls to one repository of a forge. Every one of them may raise ForgeError."""

    def issues(self, since: datetime | None, etag: str) -> tuple[Sequence[IssueData], str] | None:
        """Return the issues changed since a moment, oldest change first, and the answer's ETag; None if nothing
        changed."""

    def issue(self, number: int) -> IssueData: ...

    def remote(self) -> str:
        """Return the address from which git clones the repository over HTTP."""

    def find_comment(self, number: int, marker: str) -> int | None:
        """Return the id of the issue's comment that contains the marker."""

    def add_comment(self, number: int, text: str) -> int:
        """Return the new comment's id."""

    def edit_comment(self, number: int, comment_id: int, text: str) -> None:
        """Raises NotThere if it was deleted."""

    def find_pull(self, branch: str) -> Pull | None:
        """Return the newest pull request from a branch, whatever its state."""

    def open_pull(self, branch: str, base: str | None, title: str, text: str) -> Pull: ...

    def pull(self, number: int) -> Pull: ...

    def checks(self, pull: Pull, known: Collection[str]) -> Checks:
        """Return CI's result. Its failed jobs are those whose keys are not in `known`."""

    def comments(self, number: int, since: datetime | None, known: Collection[str]) -> Sequence[Comment]:
        """Return the comments on a pull request whose keys are not in `known`."""


@dataclass
class StepResult:
    """What a step found and did, up to its error."""

    error: ForgeError | None = None
    issues: Sequence[IssueData] | None = None  # None where nothing changed
    etag: str = ""
    columns: dict[str, Any] = field(default_factory=dict)  # of the taken issue, to be stored
    jobs: list[Job] = field(default_factory=list)  # that failed, and the agent does not know
    comments: list[Comment] = field(default_factory=list)  # likewise
    left_out: dict[str, str] = field(default_factory=dict)  # what does not reach the agent, by a key to be known
    is_closed: bool = False  # the issue was, before it had a pull request
    pushed: str = ""  # the branch of a git remote
    watched: Watched | None = None  # of a git remote; None where nothing changed


def text_of(value: str | None, most: int = MAX_TEXT + 1) -> str:
    """Return the beginning of a text of others, as it can be stored."""
    return (value or "")[:most].encode(errors="replace").decode().replace("\0", "")


def end_of(pieces: Iterable[bytes]) -> str:
    """Return the end of a log; of one that is too long or comes too slowly, the end of what came."""
    deadline, end, read = time.monotonic() + LOG_SECONDS, b"", 0
    for piece in pieces:
        end, read = (end + piece)[-4 * MAX_LOG :], read + len(piece)
        if read > LOG_BYTES or time.monotonic() > deadline:
            break
    return text_of(end.decode(errors="replace")[-MAX_LOG:])
