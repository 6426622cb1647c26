"""A project's `.nexus` directory: opened from its root step by step, so that no link leads out of it.

Standard library alone, and no Django: a hook works on it, too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from io import BufferedReader
from math import inf
from typing import Self

from nexus.core.operations.errors import NexusError
from nexus.planning.errors import PlanningCode

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

NAME, STATE = ".nexus", "state"
IGNORE = (".gitignore", b"state/\n")
LOCK = "state/.lock"
# What it holds.
PLAN, TASKS, HISTORY = "state/plan.json", "state/tasks.json", "history.json"
RUNTIME, AGENTS = "state/runtime.json", "state/agent-tracker.json"
EDITS, REOPENED = "state/edit-tracker.json", "state/reopen-tracker.json"
ARTIFACTS = "state/artifacts"
DECISIONS = "state/decisions.json"  # which some consumers write
LOG, NOTES = "state/tool-log.jsonl", "state/hook-notes.jsonl"
MAX_BYTES = 32 << 20  # of a file that is read
SLACK = 1 / 32  # of that nothing is written: a handoff may lengthen a file a little, and must go on
REASONS = {errno.ELOOP: "it is a link", errno.ENOTDIR: "it is a link, or no directory is where one should be"}
ROOM = 1 << 20  # a disk with less of it is full
TIME_LIMIT_SECONDS = 5.0  # for the lock: as long as a busy store may take whoever has it
_in_vain: dict[str, float] = {}  # by root, when a call last gave up after all that time: others do not wait in a row
_flags = {name: getattr(os, name, 0) for name in ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")}
DIRECTORY, NOFOLLOW, NONBLOCK, CLOEXEC = _flags.values()  # 0 where the system does not have it
FOLDER = os.O_RDONLY | DIRECTORY | NOFOLLOW | CLOEXEC
_threads: dict[str, threading.Lock] = {}  # by root, where there is no lock between processes


class Directory:
    """`.nexus` of the project at `root`, a real path; made when something is written. Paths are relative to it.

    Every method raises STATE_UNAVAILABLE where the directory cannot be used.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._folders: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._folders.values():
            os.close(descriptor)
        self._folders.clear()

    def read(self, path: str) -> bytes | None:
        """The content of a file; None where there is none."""
        with self._opened(path) as file:
            if file is None:
                return None
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than {MAX_BYTES >> 20} MiB")
            return file.read()

    def digest(self, path: str) -> str:
        """The sha256 of a file, however large it is; empty where there is none."""
        with self._opened(path) as file:
            return "" if file is None else hashlib.file_digest(file, "sha256").hexdigest()

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[BufferedReader | None]:
        """A regular file, open for reading; None where there is none."""
        with self._explained(path):
            folder, name = self._at(path, make=False)
            try:
                flags = os.O_RDONLY | NOFOLLOW | NONBLOCK | CLOEXEC
                descriptor = None if folder is None else os.open(name, flags, dir_fd=folder)
            except FileNotFoundError:
                descriptor = None
            if descriptor is None:
                yield None
                return
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "it is no regular file")
                yield file

    def stamp(self, path: str) -> str:
        """Changes whenever a file is replaced or written; empty where there is none."""
        with self._explained(path):
            folder, name = self._at(path, make=False)
            if folder is None:
                return ""
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return ""
            return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"

    def size(self, path: str) -> int:
        """Bytes of a file; 0 where there is none."""
        stamp = self.stamp(path)
        return int(stamp.split(":")[1]) if stamp else 0

    def write(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Give a file this content in one step: who reads it meanwhile gets the old content or the new."""
        with self._explained(path):
            folder, name = self._at(path, make=True)
            assert folder is not None
            draft = f".{name}.{secrets.token_hex(6)}.partial"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | CLOEXEC
            descriptor = os.open(draft, flags, 0o644, dir_fd=folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    file.flush()
                    if durable:
                        os.fsync(descriptor)
                os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise
            if durable:
                os.fsync(folder)

    def append(self, path: str, line: bytes) -> None:
        """Add to the end of a file, all of it or nothing; whoever calls it holds the lock."""
        with self._explained(path):
            folder, name = self._at(path, make=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NOFOLLOW | CLOEXEC
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
            try:
                before, left = os.fstat(descriptor).st_size, line
                try:
                    while left:
                        left = left[os.write(descriptor, left) :]
                except BaseException:  # such as a disk that is full in the middle of it
                    os.ftruncate(descriptor, before)
                    raise
            finally:
                os.close(descriptor)

    def remove(self, path: str) -> bool:
        """Remove a file; whether there was one."""
        with self._explained(path):
            folder, name = self._at(path, make=False)
            if folder is None:
                return False
            try:
                os.unlink(name, dir_fd=folder)
            except FileNotFoundError:
                return False
            return True

    def names(self, folder: str) -> list[str]:
        """The names in a folder, sorted; none where there is no such folder."""
        with self._explained(folder):
            descriptor = self._folder(folder, make=False)
            return [] if descriptor is None else sorted(os.listdir(descriptor))  # noqa: PTH208  # of the folder that was opened

    def initialise(self) -> None:
        """Make the directory, its state folder and its .gitignore where they are missing."""
        with self._explained(STATE):
            self._folder(STATE, make=True)
        if self.read(IGNORE[0]) is None:
            self.write(*IGNORE, durable=False)

    @contextlib.contextmanager
    def locked(self, patience: float = TIME_LIMIT_SECONDS) -> Iterator[None]:
        """Inside, no other process of ours changes the files. Raises STATE_BUSY: after `patience` seconds, or at once
        where a call just waited in vain for as long as calls do."""
        self.initialise()
        with self._explained(LOCK):
            folder, name = self._at(LOCK, make=True)
            flags = os.O_RDWR | os.O_CREAT | NOFOLLOW | CLOEXEC
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
        try:
            began = time.monotonic()
            waits = patience if began - _in_vain.get(self.root, -inf) >= TIME_LIMIT_SECONDS else 0.0
            while not self._try_lock(descriptor):
                if time.monotonic() - began >= waits:
                    if waits >= TIME_LIMIT_SECONDS:
                        _in_vain[self.root] = time.monotonic()
                    raise NexusError(
                        PlanningCode.STATE_BUSY,
                        "Another process works on this project's plan; send the same call again in a moment.",
                        {"retryable": True},
                    )
                time.sleep(0.002)
            self._lock = descriptor
            _in_vain.pop(self.root, None)
            try:
                yield
            finally:
                if fcntl is None:
                    _threads[self.root].release()
        finally:
            os.close(descriptor)

    @property
    def interrupted(self) -> bool:
        """Whether somebody is writing, or ended before the files were what the store says."""
        status = self.stamp(LOCK)
        return bool(status) and status.split(":")[1] != "0"

    def begin(self) -> None:
        """Inside the lock: the files are about to fall behind the store."""
        with self._explained(STATE):
            disk = os.fstatvfs(self._lock)
            if disk.f_bavail * disk.f_frsize < ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.pwrite(self._lock, b"1", 0)

    def done(self) -> None:
        """Inside the lock: they are what the store says."""
        with self._explained(LOCK):
            os.ftruncate(self._lock, 0)

    def _try_lock(self, descriptor: int) -> bool:
        if fcntl is None:
            return self._taken_here()
        with self._explained(LOCK):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def _taken_here(self) -> bool:
        """Where processes cannot lock a file, the threads of this one still take turns."""
        if self.root not in _threads:
            log.warning(
                "This Python has no fcntl: the files in %s/%s are not locked between processes. Run one Nexus process "
                "for this project.",
                self.root,
                NAME,
            )
        return _threads.setdefault(self.root, threading.Lock()).acquire(blocking=False)

    def _at(self, path: str, *, make: bool) -> tuple[int | None, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder, make=make), name

    def _folder(self, path: str, *, make: bool) -> int | None:
        if path in self._folders:
            return self._folders[path]
        if not path:
            root = os.open(self.root, FOLDER)
            try:
                descriptor = _folder_in(NAME, root, make=make)
            finally:
                os.close(root)
        else:
            parent, _, name = path.rpartition("/")
            above = self._folder(parent, make=make)
            descriptor = None if above is None else _folder_in(name, above, make=make)
        if descriptor is not None:
            self._folders[path] = descriptor
        return descriptor

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise  # a hook's patience is over
        except OSError as error:
            what = REASONS.get(error.errno or 0, error.strerror)
            raise NexusError(
                PlanningCode.STATE_UNAVAILABLE,
                f".nexus/{path} of this project cannot be used: {what}. Nothing outside .nexus was touched; make it a "
                "plain file or directory that this user may write, on a disk with room.",
                {"file": f".nexus/{path}"},
            ) from None


def _folder_in(name: str, parent: int, *, make: bool) -> int | None:
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not make:
            return None
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
        return os.open(name, FOLDER, dir_fd=parent)
