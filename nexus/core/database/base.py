"""The protocol of a database: everything that Nexus needs of it beyond the ORM. The packages `sqlite` and `postgres`
implement it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol

from django.db.models import Model

from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError

Insertion = tuple[str, Sequence[Any], str]  # a statement, its parameters, and the attribute of the key it returns
DISK_LOW = 0.95  # used share of the disk from which on an operator should know


class CommitWatch(Protocol):
    """A watch for commits of a model's rows, by any process; used by one task at a time."""

    def has_news(self, seen: int) -> bool:
        """Return whether there may be rows with a key above `seen`; cheap enough for many calls a second."""

    def close(self) -> None:
        """End the watch."""


class ExclusiveLock(Protocol):
    """A lock that makes this process the only one of its kind at a store; it ends with the process, however that
    ends."""

    def held(self) -> bool:
        """Return whether this process still has the lock; a database server that restarted has lost it."""

    def release(self) -> None:
        """Release the lock."""


class Store(Protocol):
    """The protocol of the store; one module of each database implements it."""

    WRITERS: int  # calls of a process that may write at once

    def django_settings(self, config: CoreSettings) -> dict[str, Any]:
        """Return Django's DATABASES entry."""

    def prepare(self) -> None:
        """Create the store, or migrate it to this version, once, however many processes start together.

        Raises DB_ERROR when it cannot be opened, MIGRATION_ERROR when it is newer than the code, older than it can
        migrate, or a step failed.
        """

    def release(self) -> None:
        """Release this thread's connection until it is used again."""

    def guard(self) -> None:
        """Make this long-lived process refuse a store whose file was moved or replaced, from now on."""

    def check(self) -> None:
        """Check that a guarded store is still at its path. Raises DB_ERROR."""

    def pending(self) -> bool:
        """Return whether a migration of this version is not applied, or a trigger is missing or different.

        Raises as `prepare` does.
        """

    def is_busy(self, error: Exception) -> bool:
        """Return whether another connection's lock is the only cause of an error."""

    def failure(self, error: Exception) -> NexusError | None:
        """Return the DB_ERROR for an error of the database, with its cause and what to do; None when unknown."""

    def moment(self, value: datetime) -> Any:
        """Return the parameter of a statement for a time."""

    def look(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of a read that is small enough to run on an event loop; `?` stands for a value.

        Raises SynchronousOnlyOperation if only a thread may run it, or if it takes long.
        """

    def write(self, *names: str, late: bool = False) -> AbstractContextManager[None]:
        """Run a writing transaction; inside another one, a savepoint. It waits for its turn within a time limit.

        Without names, or with too many, it runs alone. With names it may run beside transactions that have none of
        them: what it reads before it writes must be changed only under one of its names, or by who runs alone. One
        inside it has names of it, too, unless it is `late`: then it waits for those that it has not, and may fail as
        busy.
        """

    def append(self, row: Model, statement: Callable[[], Insertion], *, numbered: bool) -> bool:
        """Take over the insert of a row of the log, so that rows become visible in the order of their automatic keys.
        Unless it is `numbered`, the key may be set only at the commit. False where the caller inserts it."""

    def batch(self) -> AbstractContextManager[None]:
        """Send the named SQL of the block that writes together where the server is far, as soon as an answer is needed,
        or with the commit. The error of one may come with a later one, and no update in the block tells how
        many rows it changed."""

    def snapshot(self) -> AbstractContextManager[None]:
        """Let every read in the block see the same committed state, without a lock that a writer would wait for."""

    def without_waiting(self) -> AbstractContextManager[None]:
        """Make a lock that another connection holds an immediate error within the block."""

    def watch(self, model: type[Model]) -> CommitWatch:
        """Begin to watch for commits that add rows to `model`. Raises Django's errors, as queries do."""

    def exclusive_lock(self, kind: str) -> ExclusiveLock | None:
        """Take the lock that makes this process the only one of a kind at the store; None while another has it.

        Raises Django's errors, and OSError.
        """

    def install(self, objects: Mapping[str, str]) -> None:
        """Create triggers anew, by name; a repetition changes nothing."""

    def given_out(self, model: type[Model]) -> int:
        """Return the highest automatic id that a model's table has given out, even to a deleted row; 0 if none."""

    def give_out_above(self, model: type[Model], head: int) -> None:
        """Let the next automatic id be above `head`, and above all ids given out before. Call it inside a
        transaction."""

    def size_on_disk(self) -> int:
        """Return the size of the store in bytes."""

    def disk_used(self) -> float:
        """Return the used share of the store's disk, 0 to 1."""

    def compact(self) -> tuple[int, int]:
        """Give free space back to the disk; return the size before and after, in bytes."""
