"""The store's file as a reader reaches it that may not write beside it, such as a hook in an agent's sandbox whose home
is mounted read-only. Standard library alone, and little of it: hooks use it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

LARGEST_COPY = 512 << 20  # bytes; a hook has seconds


@contextmanager
def address(path: str) -> Iterator[str]:
    """Yield the URI with which SQLite reads the store at `path`, its write-ahead log included. Raises OSError."""
    log, index = f"{path}-wal", f"{path}-shm"
    if os.path.exists(index) or os.access(os.path.dirname(path) or ".", os.W_OK):  # noqa: PTH110, PTH120
        yield uri(path, "mode=ro")
    elif not _size(log):  # closed in order, and nobody writes
        yield uri(path, "immutable=1")
    else:  # the index of the log can be made beside a copy only
        if _size(path) + _size(log) > LARGEST_COPY:
            raise OSError("its log must be read, its directory cannot be written, and it is too large for a copy")
        import shutil
        import tempfile

        with tempfile.TemporaryDirectory(prefix="nexus-") as scratch:
            copy = os.path.join(scratch, "store.db")
            shutil.copyfile(log, f"{copy}-wal")
            shutil.copyfile(path, copy)
            yield uri(copy, "mode=rw")


def uri(path: str, options: str) -> str:
    """Return a file's path as an SQLite URI."""
    return f"file:{path.replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?{options}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0
