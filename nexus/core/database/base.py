"""What a database must do for Nexus, beyond what the ORM asks of it; the module named after each database does it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from django.db.models import Model

from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError

DISK_LOW = 0.95  # used share of the disk from which on an operator should know


class CommitWatch(Protocol):
    """Sees that rows of a model were committed, by any process; used by one task at a time."""

    descriptor: int | None  # becomes readable when a commit is near; None where nothing tells of that

    @property
    def pause(self) -> float:
        """Seconds until the next look, unless the descriptor becomes readable."""

    def has_news(self, seen: int) -> bool:
        """Whether there may be rows with a key above `seen`; cheap enough for many looks a second."""

    def drain(self) -> None:
        """Make the descriptor unreadable again: the caller has seen that a commit is near."""

    def close(self) -> None:
        """End the watch."""


class ExclusiveLock(Protocol):
    """That this process is the only one of its kind over a store; it ends with the process, however that ends."""

    def held(self) -> bool:
        """Whether it still is: a server that was restarted has forgotten."""

    def release(self) -> None:
        """Let another be it."""


class Store(Protocol):
    """The store in use; a module implements it."""

    def django_settings(self, config: CoreSettings) -> dict[str, Any]:
        """Django's DATABASES entry."""

    def prepare(self) -> None:
        """Make the store, or bring it to this version, once, however many processes start together.

        Raises DB_ERROR when it cannot be opened, MIGRATION_ERROR when it is newer than the code or a step failed.
        """

    def release(self) -> None:
        """This thread has done what it does with the store for now: others may have its connection."""

    def guard(self) -> None:
        """From here on this long-lived process refuses a store that was moved from under it."""

    def check(self) -> None:
        """Raises DB_ERROR while a guarded store is not where it was."""

    def pending(self) -> bool:
        """Whether a migration of this version is not applied, or a trigger not as it should be.

        Raises as `prepare` does.
        """

    def is_busy(self, error: Exception) -> bool:
        """Whether another connection's lock is all that is wrong."""

    def failure(self, error: Exception) -> NexusError | None:
        """The DB_ERROR for an error of the database, with its cause and what to do; None when unknown."""

    def look(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """The rows of a read so small that an event loop makes it itself; `?` stands for a parameter.

        Raises SynchronousOnlyOperation where only a thread may ask, and where the read takes long.
        """

    def write(self) -> AbstractContextManager[None]:
        """A transaction that writes; inside another one, a part of that. Waits its turn, and not for ever."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Inside, every read sees the same committed state, and no lock is taken that a writer would wait for."""

    def without_waiting(self) -> AbstractContextManager[None]:
        """Inside, a lock held by another connection fails at once."""

    def watch(self, model: type[Model]) -> CommitWatch:
        """Begin to watch for commits that add rows to `model`. Raises Django's errors, as queries do."""

    def exclusive_lock(self, kind: str) -> ExclusiveLock | None:
        """Become the only process of a kind over the store; None while another is.

        Raises Django's errors, and OSError.
        """

    def install(self, objects: Mapping[str, str]) -> None:
        """Make triggers anew, by name; a second time changes nothing."""

    def given_out(self, model: type[Model]) -> int:
        """The highest automatic id that a model's table gave out, whatever became of its row; 0 when it gave none."""

    def give_out_above(self, model: type[Model], head: int) -> None:
        """Inside a transaction: the next automatic id is above `head`, and above what was given out before."""

    def admit_gaps(self, table: str) -> None:
        """Inside a transaction: ids that `table` lacks now, up to the highest it gave out, are no fault to doctor."""

    def size_on_disk(self) -> int:
        """Bytes that the store takes."""

    def disk_used(self) -> float:
        """The used share of the disk it is on, 0 to 1."""

    def compact(self) -> tuple[int, int]:
        """Give free room back; the size before and after, in bytes."""
