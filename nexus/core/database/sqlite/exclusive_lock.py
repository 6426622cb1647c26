"""Who is the only one of its kind: a lock on a file beside the store."""

from __future__ import annotations

from typing import Any

from nexus.core.config import CoreSettings
from nexus.core.database.sqlite.file import beside


class ExclusiveLock:
    """A lock on a file beside the store."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock

    def held(self) -> bool:
        """The operating system keeps it."""
        return True

    def release(self) -> None:
        self._lock.release()


def exclusive_lock(kind: str) -> ExclusiveLock | None:
    """Become the only process of a kind over the store; None while another is."""
    from filelock import FileLock, Timeout

    path = beside(CoreSettings.current().database, f".{kind}.lock")
    lock = FileLock(path, mode=0o600, thread_local=False)  # any thread may release it
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return ExclusiveLock(lock)
