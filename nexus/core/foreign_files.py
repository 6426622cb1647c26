"""Files and directories that others made, or may change meanwhile: an agent, a repository, a client.

A path is opened one part after the other, and no symbolic link is followed, so that nothing leads elsewhere. Only
regular files are read and replaced. Nothing waits, as it would for a FIFO; everything has a bound, and no depth is too
much. A path is absolute, or below the open directory `at`. Everything raises OSError, unless it says otherwise.

Standard library alone: hooks use it.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader, FileIO
from itertools import islice

CLOSED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # not on Windows
LISTING = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | CLOSED
PASSING = getattr(os, "O_PATH", 0) | LISTING  # a directory may be passed that cannot be listed
LARGEST = 32 << 20  # bytes of a file
CHUNK = 1 << 20
DEEPEST = 64  # directories in each other that a walk goes into
May = Callable[[str], bool]


def open_directory(path: str, at: int | None = None, *, flags: int = LISTING, may_make: May | None = None) -> int:
    """Return a descriptor of a directory, with these flags. A missing one is made where `may_make` its path, as far as
    it is opened here."""
    parts = [part for part in path.split("/") if part]
    here = os.open("/" if at is None else ".", PASSING if parts else flags, dir_fd=at)
    try:
        for number, part in enumerate(parts, start=1):
            how = flags if number == len(parts) else PASSING
            try:
                inner = os.open(part, how, dir_fd=here)
            except FileNotFoundError:
                if may_make is None or not may_make("/" * (at is None) + "/".join(parts[:number])):
                    raise
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=here)
                inner = os.open(part, how, dir_fd=here)
            os.close(here)
            here = inner
    except BaseException:
        os.close(here)
        raise
    return here


@contextmanager
def directory(path: str, at: int | None = None, *, flags: int = LISTING, may_make: May | None = None) -> Iterator[int]:
    """Yield what `open_directory` returns, and close it."""
    opened = open_directory(path, at, flags=flags, may_make=may_make)
    try:
        yield opened
    finally:
        os.close(opened)


@contextmanager
def _parent(path: str, at: int | None, may_make: May | None = None) -> Iterator[tuple[int, str]]:
    above, _, name = path.rpartition("/")
    with directory(above, at, flags=PASSING, may_make=may_make) as opened:
        yield opened, name


def open_file(path: str, at: int | None = None) -> BufferedReader:
    """Open a regular file for reading."""
    with _parent(path, at) as (above, name):
        opened = os.open(name or ".", os.O_RDONLY | CLOSED, dir_fd=above)
    try:
        check_regular(os.fstat(opened))
    except OSError:
        os.close(opened)
        raise
    return os.fdopen(opened, "rb")


def read_file(path: str, at: int | None = None, *, largest: int = LARGEST) -> bytes:
    """Return the content of a regular file. EFBIG if it is larger than `largest` bytes."""
    with open_file(path, at) as opened:
        content = opened.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"has over {largest} bytes")
    return content


def beginning(path: str, largest: int) -> bytes | None:
    """Return up to `largest` bytes of a regular file; None for anything else. Links may lead to its directory."""
    with suppress(OSError, ValueError):  # a path with NUL is a ValueError
        opened = os.open(path, os.O_RDONLY | CLOSED)
        try:
            return os.read(opened, largest) if stat.S_ISREG(os.fstat(opened).st_mode) else None
        finally:
            os.close(opened)
    return None


def replace(
    path: str,
    content: bytes,
    at: int | None = None,
    *,
    mode: int | None = None,
    may_make: May | None = None,
    durable: bool = False,
) -> None:
    """Give a regular file, or a new one, this content in one step. It keeps its mode, unless one is given."""
    with _parent(path, at, may_make) as (above, name):
        known = status(name, above)
        if known is not None:
            check_regular(known)
            mode = stat.S_IMODE(known.st_mode) & 0o777 if mode is None else mode
        draft = f".{os.urandom(8).hex()}.partial"
        try:
            opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED, 0o666, dir_fd=above)
            with os.fdopen(opened, "wb") as file:
                if mode is not None:
                    os.fchmod(opened, mode)
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(opened)
            os.replace(draft, name, src_dir_fd=above, dst_dir_fd=above)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=above)
            raise
        if durable:
            with directory("", above) as listed:
                os.fsync(listed)


def copy(path: str, at: int, to: str, to_at: int, *, largest: int) -> int:
    """Copy a regular file, with its mode and time, to where nothing is; return its size. Missing directories above that
    are made. EFBIG if the file is larger than `largest` bytes."""
    with open_file(path, at) as source, _parent(to, to_at, lambda _: True) as (above, name):
        about = os.fstat(source.fileno())
        if about.st_size > largest:
            raise OSError(errno.EFBIG, f"has over {largest} bytes")
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | CLOSED, 0o600, dir_fd=above)
        with os.fdopen(opened, "wb") as target:
            left = about.st_size  # it may grow meanwhile
            while left and (chunk := source.read(min(left, CHUNK))):
                target.write(chunk)
                left -= len(chunk)
            target.flush()
            os.fchmod(opened, stat.S_IMODE(about.st_mode) & 0o777)
            os.utime(opened, ns=(about.st_atime_ns, about.st_mtime_ns))
    return about.st_size


def rewrite(path: str, content: bytes, *, mode: int) -> None:
    """Give a regular file this content in place: its owner and its mount stay. An error puts the old content back."""
    with _parent(path, None) as (above, name):
        opened = os.open(name, os.O_RDWR | CLOSED, dir_fd=above)
    with os.fdopen(opened, "r+b", buffering=0) as file:
        known = os.fstat(opened)
        check_regular(known)
        if stat.S_IMODE(known.st_mode) != mode:
            os.fchmod(opened, mode)
        before = file.readall()
        try:
            _fill(file, content)
        except OSError:
            _fill(file, before)
            raise


def _fill(file: FileIO, content: bytes) -> None:
    file.seek(0)
    while content:
        content = content[file.write(content) or 0 :]
    file.truncate()
    os.fsync(file.fileno())


def unlink(path: str, at: int | None = None) -> bool:
    """Remove a file or a link; return whether there was one."""
    with suppress(FileNotFoundError), _parent(path, at) as (above, name):
        os.unlink(name, dir_fd=above)
        return True
    return False


def status(path: str, at: int | None = None) -> os.stat_result | None:
    """Return the status of what is at a path, which may be a link; None if nothing is there."""
    with suppress(FileNotFoundError), _parent(path, at) as (above, name):
        return os.stat(name, dir_fd=above, follow_symlinks=False)
    return None


def check_regular(status: os.stat_result) -> None:
    """Check that this is the status of a regular file."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a directory")
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, "is a link")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "is no regular file")


class Bounds:
    """The progress of a walk, and its limits."""

    def __init__(self, entries: int = 200_000, seconds: float = 10.0) -> None:
        self.entries, self.seconds, self.until = entries, seconds, time.monotonic() + seconds
        self.seen = 0
        self.reached: str | None = None  # the limit that ended it
        self.missed = False  # a directory was too deep, or cannot be read

    def stop(self) -> bool:
        """Count one more entry; return whether a limit is reached."""
        self.seen += 1
        if self.seen > self.entries:
            self.reached = f"{self.entries} entries were looked at"
        elif time.monotonic() > self.until:
            self.reached = f"{self.seconds:g} seconds were over"
        return self.reached is not None


def walk(top: int, bounds: Bounds, left_out: May | None = None) -> Iterator[tuple[str, int, os.DirEntry[str]]]:
    """Yield the regular files below an open directory, within bounds: the path below it, the file's directory, its
    entry; the last two until the next is asked for. Directories whose path is `left_out` are not looked into."""
    levels: list[tuple[int, str, list[str]]] = []  # open directories, with what is left of their own ones
    here, prefix = os.dup(top), ""
    try:
        while True:
            deeper: list[str] = []
            levels.append((here, prefix, deeper))
            with os.scandir(here) as entries:
                for entry in entries:
                    if bounds.stop():
                        return
                    if entry.is_dir(follow_symlinks=False):
                        deeper.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        yield prefix + entry.name, here, entry
            if len(levels) > DEEPEST and deeper:
                bounds.missed = True
                deeper.clear()
            deeper.sort(reverse=True)
            while True:
                while not levels[-1][2]:
                    os.close(levels.pop()[0])
                    if not levels:
                        return
                above, prefix, left = levels[-1]
                name = left.pop()
                if left_out is not None and left_out(prefix + name):
                    continue
                try:
                    here = open_directory(name, above)
                except OSError:  # removed meanwhile, or not readable
                    bounds.missed = True
                    continue
                prefix += f"{name}/"
                break
    finally:
        for level in levels:
            os.close(level[0])


def remove(path: str, at: int | None = None, *, seconds: float = 60.0) -> None:
    """Remove whatever is at a path; nothing if there is nothing. Raises OSError, and leaves the rest then.

    Directories in a directory are first moved to the top, so that any depth takes two descriptors.
    """
    with suppress(FileNotFoundError), _parent(path, at) as (above, name):
        if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
            _remove_directory(name, above, None, time.monotonic() + seconds)
        else:
            os.unlink(name, dir_fd=above)


def _remove_directory(name: str, at: int, top: int | None, until: float) -> None:
    opened = _opened_up(name, at)
    try:
        while _emptied(opened, opened if top is None else top, until):
            pass
    finally:
        os.close(opened)
    os.rmdir(name, dir_fd=at)


def _emptied(directory: int, top: int, until: float) -> bool:
    """Remove the entries of a directory; those of its own directories are moved to the top, or removed if it is the
    top. Return whether there was any."""
    went, failure = 0, None
    with os.scandir(directory) as entries:
        batch = list(islice(entries, 10_000))
    for entry in batch:
        if time.monotonic() > until:
            raise TimeoutError(errno.ETIMEDOUT, "its removal takes too long")
        try:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=directory)
            elif directory != top:
                os.close(_opened_up(entry.name, directory))  # to be moved, it must be writable
                os.rename(entry.name, os.urandom(16).hex(), src_dir_fd=directory, dst_dir_fd=top)
            else:
                _remove_directory(entry.name, top, top, until)
            went += 1
        except FileNotFoundError:  # others remove it, too
            went += 1
        except TimeoutError:
            raise
        except OSError as error:
            failure = error
    if failure is not None and not went:
        raise failure
    return bool(batch)


def _opened_up(name: str, at: int) -> int:
    with suppress(OSError), directory(name, at, flags=PASSING) as passing:
        grant(passing)  # its owner may make it writable
    return open_directory(name, at)


def grant(directory: int) -> bool:
    """Give the owner all rights to an open directory; False if it is none."""
    mode = os.fstat(directory).st_mode
    if stat.S_ISDIR(mode) and mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(f"/proc/self/fd/{directory}", stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101
    return stat.S_ISDIR(mode)


def is_dot_git(name: str) -> bool:
    """Return whether some file system takes a name for `.git`: in any case, with characters that it leaves out, or by
    the short name that Windows makes of it."""
    import unicodedata  # a hook starts without it

    wide = unicodedata.normalize("NFKD", name)
    plain = "".join(each for each in wide if unicodedata.category(each) not in ("Mn", "Cf"))
    return plain.partition(":")[0].rstrip(" .").casefold() in (".git", "git~1")


def is_of_repository(name: str) -> bool:
    """Return whether git takes a directory with this name, and some others like it, for a repository."""
    return is_dot_git(name) or name.casefold() in ("head", "objects", "refs", "commondir")
