"""A project's `.nexus` directory and its git branch, read without a program.

Each path component of `.nexus` is opened on its own, so that no link leads out of the project. Standard library only,
without Django, because a hook uses it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import platform
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BufferedReader
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Self

from nexus.core import foreign_files
from nexus.core.foreign_files import CLOSED, beginning
from nexus.core.operations.errors import ErrorCode, NexusError
from nexus.core.processes import CHUNK, operators_git, run

NO_BRANCH = "_default"  # where there is no branch, because consumers need a name
LONGEST_HEAD = 4096  # bytes of a file that are read
POINTER = "gitdir: "
NO_FILES = "ref: refs/heads/.invalid"  # a HEAD beside a reftable
COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
REF = re.compile(r"ref: refs/(?:heads/)?(?P<name>[^\x00-\x20\x7f~^:?*\[\\]{1,255})")
UNUSABLE = re.compile(r"\.\.|@\{|//|/\.|^[./]|[./]$|\.lock$|\.lock/|\ufffd")  # as in `git check-ref-format`


class PlanningCode(ErrorCode):
    """Errors of the files in a project's `.nexus` directory."""

    STATE_FILE_INVALID = (
        "STATE_FILE_INVALID",
        409,
        "A file in .nexus breaks its schema; details name file and fault. It was left as it is: correct or remove it.",
    )
    STATE_UNAVAILABLE = (
        "STATE_UNAVAILABLE",
        503,
        "The project's .nexus directory cannot be used: read-only, full, gone, or a link that leads elsewhere.",
    )
    STATE_BUSY = "STATE_BUSY", 503, "Another process works on this project's plan; send the same call again."


try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

NAME, STATE = ".nexus", "state"
IGNORE = (".gitignore", b"state/\n")
LOCK = "state/.lock"
# The layout of `.nexus`.
PLAN, TASKS, HISTORY = "state/plan.json", "state/tasks.json", "history.json"
RUNTIME, AGENTS = "state/runtime.json", "state/agent-tracker.json"
EDITS, REOPENED = "state/edit-tracker.json", "state/reopen-tracker.json"
ARTIFACTS = "state/artifacts"
DECISIONS = "state/decisions.json"  # some consumers write it
LOG, NOTES = "state/tool-log.jsonl", "state/hook-notes.jsonl"
MAX_BYTES = 32 << 20  # the largest file that is read
SLACK = 1 / 32  # share of it that is never used by a write: a handoff may lengthen a file a little, and must not fail
REASONS = {errno.ELOOP: "it is a link", errno.ENOTDIR: "it is a link, or no directory is where one should be"}
ROOM = 1 << 20  # a disk with less free space counts as full
STALE_SECONDS = 30  # after which nexus-core's programs remove another's lock of a file
TIME_LIMIT_SECONDS = 5.0  # for the lock: as long as a busy store may delay its holder
_in_vain: dict[str, float] = {}  # by root, when a call last waited in vain: others then do not wait, too
_threads: dict[str, threading.Lock] = {}  # by root, for systems without locks between processes


class Directory:
    """`.nexus` of the project at `root`, a real path; created at the first write. Paths are relative to it.

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
        """Return the content of a file; None where there is none."""
        with self._opened(path) as file:
            if file is None:
                return None
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than {MAX_BYTES >> 20} MiB")
            return file.read()

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a file of any size; empty where there is none."""
        with self._opened(path) as file:
            return "" if file is None else hashlib.file_digest(file, "sha256").hexdigest()

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[BufferedReader | None]:
        """Open a regular file for reading; None where there is none."""
        with self._explained(path):
            folder, name = self._at(path, make=False)
            try:
                opened = None if folder is None else foreign_files.open_file(name, folder)
            except FileNotFoundError:
                opened = None
            with opened or contextlib.nullcontext() as file:
                yield file

    def stamp(self, path: str) -> str:
        """Return a text that changes whenever the file is replaced or written; empty where there is none."""
        with self._explained(path):
            folder, name = self._at(path, make=False)
            if folder is None:
                return ""
            status = foreign_files.status(name, folder)
            return f"{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}" if status else ""

    def size(self, path: str) -> int:
        """Return the size of a file in bytes; 0 where there is none."""
        stamp = self.stamp(path)
        return int(stamp.split(":")[1]) if stamp else 0

    def write(self, path: str, content: bytes, *, durable: bool = True) -> None:
        """Replace a file atomically: a reader gets the old content or the new."""
        with self._explained(path):
            folder, name = self._at(path, make=True)
            assert folder is not None
            foreign_files.replace(name, content, folder, durable=durable)

    def append(self, path: str, line: bytes) -> None:
        """Append a line to a file, all of it or nothing. The caller must hold the lock."""
        with self._explained(path):
            folder, name = self._at(path, make=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | CLOSED
            descriptor = os.open(name, flags, 0o644, dir_fd=folder)
            try:
                foreign_files.check_regular(os.fstat(descriptor))
                before, left = os.fstat(descriptor).st_size, line
                try:
                    while left:
                        left = left[os.write(descriptor, left) :]
                except BaseException:  # such as a full disk in the middle of it
                    os.ftruncate(descriptor, before)
                    raise
            finally:
                os.close(descriptor)

    def remove(self, path: str) -> bool:
        """Remove a file; return whether there was one."""
        with self._explained(path):
            folder, name = self._at(path, make=False)
            return folder is not None and foreign_files.unlink(name, folder)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; empty where there is no such folder."""
        with self._explained(folder):
            descriptor = self._folder(folder, make=False)
            return [] if descriptor is None else sorted(os.listdir(descriptor))  # noqa: PTH208  # of the folder that was opened

    def files(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the regular files below a folder, by their paths in it, sorted; nothing where there is no folder."""
        with self._explained(folder):
            top = self._folder(folder, make=False)
            found = list[tuple[str, os.stat_result]]()
            for path, _, entry in () if top is None else foreign_files.walk(top, foreign_files.Bounds()):
                with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                    found.append((path, entry.stat(follow_symlinks=False)))
        yield from sorted(found, key=itemgetter(0))

    def initialise(self) -> None:
        """Create the directory, its state folder and its .gitignore where they are missing."""
        with self._explained(STATE):
            self._folder(STATE, make=True)
        if self.read(IGNORE[0]) is None:
            self.write(*IGNORE, durable=False)

    @property
    def is_read_only(self) -> bool:
        """Whether this user may not write the files."""
        with self._explained(STATE):
            there = [folder for path in ("", STATE) if (folder := self._folder(path, make=False)) is not None]
            if not there:
                return not os.access(self.root, os.W_OK)
            return not all(os.access(".", os.W_OK, dir_fd=folder) for folder in there)

    @contextlib.contextmanager
    def locked(
        self, patience: float = TIME_LIMIT_SECONDS, *, files: Sequence[str] = (), reading: bool = False
    ) -> Iterator[None]:
        """Lock the directory against other processes of ours, and `files` against nexus-core's programs.

        `reading` writes nothing. Raises STATE_BUSY after `patience` seconds, or at once if another call has just waited
        in vain for the whole time limit.
        """
        if not reading:
            self.initialise()
        with self._explained(LOCK):
            descriptor = self._open_to_read() if reading else self._open_lock()
        try:
            with contextlib.ExitStack() as held:
                self._wait_for(lambda: self._try_lock(descriptor), patience)
                if fcntl is None:
                    held.callback(_threads[self.root].release)
                self._lock = descriptor
                if files:
                    os.utime(descriptor)  # the age of its links, which nexus-core's programs look at
                for path in (f"{each}.lock" for each in files):
                    self._wait_for(partial(self._try_take, path), patience)
                    held.callback(self._let_go, path)
                _in_vain.pop(self.root, None)
                yield
        finally:
            os.close(descriptor)

    def _open_lock(self) -> int:
        folder, name = self._at(LOCK, make=True)
        return os.open(name, os.O_RDWR | os.O_CREAT | CLOSED, 0o644, dir_fd=folder)

    def _open_to_read(self) -> int:
        """Open the lock's file; the project's root where it is missing and cannot be created."""
        folder, name = self._at(LOCK, make=False)
        if folder is not None:
            with contextlib.suppress(FileNotFoundError):
                return os.open(name, os.O_RDONLY | CLOSED, dir_fd=folder)
        return os.open(self.root, foreign_files.LISTING)

    def _wait_for(self, take: Callable[[], bool], patience: float) -> None:
        began = time.monotonic()
        waits = patience if began - _in_vain.get(self.root, -inf) >= TIME_LIMIT_SECONDS else 0.0
        while not take():
            if time.monotonic() - began >= waits:
                if waits >= TIME_LIMIT_SECONDS:
                    _in_vain[self.root] = time.monotonic()
                raise NexusError(
                    PlanningCode.STATE_BUSY,
                    "Another process works on this project's plan; send the same call again in a moment.",
                    {"retryable": True},
                )
            time.sleep(0.002)

    def _try_take(self, path: str) -> bool:
        """Create the file that nexus-core's programs create before they write another; return whether it was missing.

        Ours is a link to our lock. One that was there before us was left by a process that was killed, because a
        living one would hold our lock.
        """
        with self._explained(path):
            folder, name = self._at(path, make=True)
            assert folder is not None
            try:
                self._create(name, folder)
            except FileExistsError:
                with contextlib.suppress(FileNotFoundError):  # it was let go meanwhile
                    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    left = os.path.samestat(status, os.fstat(self._lock))
                    if not left and time.time() - status.st_mtime <= STALE_SECONDS:
                        return False
                    os.unlink(name, dir_fd=folder)
                return self._try_take(path)
            return True

    def _create(self, name: str, folder: int) -> None:
        """Create a file that must be missing. A link takes a third of the time, where the disk has links."""
        try:
            os.link(LOCK.rpartition("/")[2], name, src_dir_fd=self._folders[STATE], dst_dir_fd=folder)
        except FileExistsError:
            raise
        except OSError:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED, 0o644, dir_fd=folder))

    def _let_go(self, path: str) -> None:
        with contextlib.suppress(NexusError):
            self.remove(path)

    @property
    def interrupted(self) -> bool:
        """Whether a process is writing, or ended before the files matched the store."""
        status = self.stamp(LOCK)
        return bool(status) and status.split(":")[1] != "0"

    def begin(self) -> None:
        """Mark that the files will differ from the store. Call it inside the lock."""
        with self._explained(STATE):
            disk = os.fstatvfs(self._lock)
            if disk.f_bavail * disk.f_frsize < ROOM:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.pwrite(self._lock, b"1", 0)

    def done(self) -> None:
        """Mark that the files match the store. Call it inside the lock."""
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
        """Lock between the threads of this process, where the system has no lock between processes; return whether it
        was taken."""
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
        parent, _, name = path.rpartition("/")
        above = self._folder(parent, make=make) if path else os.open(self.root, foreign_files.LISTING)
        try:
            below = name or NAME
            descriptor = None if above is None else foreign_files.open_directory(below, above, may_make=lambda _: make)
        except FileNotFoundError:
            if make:
                raise
            descriptor = None
        finally:
            if not path and above is not None:
                os.close(above)
        if descriptor is not None:
            self._folders[path] = descriptor
        return descriptor

    @contextlib.contextmanager
    def _explained(self, path: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError:
            raise  # a hook's time is up
        except OSError as error:
            what = REASONS.get(error.errno or 0, error.strerror)
            raise NexusError(
                PlanningCode.STATE_UNAVAILABLE,
                f".nexus/{path} of this project cannot be used: {what}. Nothing outside .nexus was touched; make it a "
                "plain file or directory that this user may write, on a disk with room.",
                {"file": f".nexus/{path}"},
            ) from None


def machine() -> str:
    """Return the machine's name: the same path on another machine is another directory."""
    return platform.node()[:200] or "localhost"


def branch_of(root: str) -> str:
    """Return the branch's name; the commit's first twelve digits on a detached head; `_default` without git.

    Where git keeps no refs in files (`reftable`), it is asked. An agent may write `.git`: a link there is not followed,
    and content that is no ref or commit is not shown.
    """
    here = Path(root)
    for folder in (here, *here.parents):
        if head := _first_line(_git_dir(folder / ".git") / "HEAD"):
            return _branch(_asked(root) if head == NO_FILES else head) or NO_BRANCH
    return NO_BRANCH


def _asked(root: str) -> str:
    """Return what HEAD would hold, from git; the empty string where it does not say."""
    for question in (("symbolic-ref", "--quiet", "HEAD"), ("rev-parse", "--verify", "--quiet", "HEAD")):
        with contextlib.suppress(OSError):
            done = run(("git", *question), cwd=root, env=operators_git(), seconds=TIME_LIMIT_SECONDS, largest=CHUNK)
            if done.code == 0:
                said = done.output.decode(errors="replace").strip()
                return f"ref: {said}" if said.startswith("refs/") else said
    return ""


def _git_dir(git: Path) -> Path:
    """Return the git directory: `.git` itself, or the one that a worktree's `.git` file names."""
    pointer = _first_line(git)
    return git.parent / pointer.removeprefix(POINTER) if pointer.startswith(POINTER) else git


def _branch(head: str) -> str:
    """Return the branch or the commit in a HEAD; the empty string for any other content, which is never shown."""
    if COMMIT.fullmatch(head):
        return head[:12]
    ref = REF.fullmatch(head)
    return ref["name"] if ref and not UNUSABLE.search(ref["name"]) else ""


def _first_line(path: Path) -> str:
    content = beginning(str(path), LONGEST_HEAD) or b""
    return content.partition(b"\n")[0].decode(errors="replace").replace("\0", "").strip()
