"""Detection of repositories that appear below an agent's write paths while it runs a program. They are renamed, so that
git ignores them.

Mounts protect the repositories that existed before. They do not keep a program from making another one, such as
`new/.git` with a `core.fsmonitor`: once the operator ran `git add .`, each `git status` of the project would run that.
So whatever git could take for a repository and did not exist when the program started is renamed, from time to time
while the program runs and once more at its end. Nobody can tell who made it, and the agent could have changed it in any
case.

A record of what existed at the start is kept in the hub's home until then. After a crash the next worker uses it to
look again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path, PurePath

from django.db import DatabaseError

from nexus.control.events import emit_event
from nexus.control.models import PoolAgent, PoolWorktree
from nexus.control.permissions import protected_paths, rules
from nexus.control.permissions.rules import Permissions, within
from nexus.control.runners import repositories, sandbox
from nexus.control.runners.base import RunnerFailed, in_share
from nexus.control.runners.repositories import DOT_GIT, HEAD, Identity
from nexus.core import foreign_files
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import WRITERS, in_thread, uninterrupted

log = logging.getLogger(__name__)

FOLDER = "programs"  # in the hub's home: a file for each program that runs
PAUSE_SECONDS = 10.0  # between two looks while a program runs, and at least
SHARE = 20  # the pause is at least so many times the last look
SECONDS = 60.0  # time limit of one look
MOST_NAMED = 20  # paths that an event names


class Unsafe(Exception):
    """Something could not be renamed; the message is for operators."""


@dataclass
class Watch:
    """The repositories that existed when a program started, to compare with later."""

    pool_agent_id: str
    roots: list[str]
    opened: list[str]  # `.git` directories that the agent may write to
    known: dict[str, Identity]
    path: str  # of the saved watch in the home
    aside: list[str] = field(default_factory=list)  # new names of renamed repositories
    unsafe: bool = False  # whether the last look failed

    def look(self) -> list[str]:
        """Rename new repositories and return their new names. Raises Unsafe."""
        deadline, aside = time.monotonic() + SECONDS, dict[str, None]()
        while True:  # opened directories and a renamed `.git` may contain more
            try:
                seen = repositories.search(self.roots, max(deadline - time.monotonic(), 0))
            except RunnerFailed as error:
                raise Unsafe(str(error)) from None
            if not seen.cut:  # forget what is gone: anything that replaces it is new
                existing = seen.repositories
                self.known = {path: known for path, known in self.known.items() if known.is_same(existing.get(path))}
            renamed, failed = list[str](), list[str]()
            for path in seen.repositories:
                try:
                    if self.is_new(seen.repositories, path) and (new := _set_aside(path)):
                        renamed.append(new)
                except OSError as error:
                    failed.append(f"{path} ({error.strerror})")
            aside |= {
                path: None for path in renamed if not any(map(aside.__contains__, map(str, PurePath(path).parents)))
            }
            is_open = [_open_up(path) for path in seen.closed]
            if not renamed and not any(is_open):
                break
        self.aside += aside
        if failed:
            raise Unsafe(f"{', '.join(failed[:MOST_NAMED])} could not be renamed")
        if seen.cut:
            raise Unsafe(f"there are more than {repositories.FOUND_BYTES} bytes of paths to look at")
        return list(aside)

    def is_new(self, seen: Mapping[str, Identity], path: str) -> bool:
        """Return whether a repository did not exist at the start and lies in no `.git` that the agent may write to."""
        known = self.known.get(path)
        return not (known is not None and known.is_same(seen[path])) and not within(path, self.opened)

    def keep(self) -> None:
        """Save the watch for the next worker."""
        Path(self.path).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        Path(self.path).write_text(json.dumps(asdict(self)))

    def over(self) -> None:
        """Remove the watch: its program has ended, and nothing new is left."""
        _watches.remove(self)
        Path(self.path).unlink(missing_ok=True)


_watches: list[Watch] = []  # of running programs


@asynccontextmanager
async def watched(agent: PoolAgent) -> AsyncIterator[list[str]]:
    """Watch the agent's write paths within the block, while a program runs in its sandbox: new repositories, whoever
    made them, are renamed, at the latest when the block ends.

    Yields the list of new names, which grows. Raises RunnerFailed if the state before cannot be determined.
    """
    watch = await in_share(agent, partial(_begun, agent))
    if watch is None:
        yield []
        return
    looking = asyncio.create_task(_now_and_then(agent, watch))
    try:
        yield watch.aside
    finally:
        looking.cancel()
        await uninterrupted(_end(agent, watch, looking))  # a cancelled turn is cancelled repeatedly


async def _now_and_then(agent: PoolAgent, watch: Watch) -> None:
    pause = PAUSE_SECONDS
    while True:
        await asyncio.sleep(pause)
        started = time.monotonic()
        await _look(agent, watch)
        pause = max(PAUSE_SECONDS, SHARE * (time.monotonic() - started))


async def _end(agent: PoolAgent, watch: Watch, looking: asyncio.Task[None]) -> None:
    await asyncio.wait((looking,))
    if await _look(agent, watch):
        watch.over()


async def _look(agent: PoolAgent, watch: Watch) -> bool:
    """Look once and report what was found; return False if something could not be renamed."""
    aside, why = await in_share(agent, partial(_looked, watch))
    if aside or why or watch.unsafe:
        await in_thread(WRITERS, partial(_report, watch, aside, why))
    return not why


def _looked(watch: Watch) -> tuple[list[str], str]:
    """Look once; return the new names, and why repositories may be left, or an empty string."""
    before, why = len(watch.aside), ""
    try:
        watch.look()
    except Exception as error:
        if not isinstance(error, Unsafe):
            log.exception("looking for new repositories failed")
        why = str(error) or type(error).__name__
    return watch.aside[before:], why


def look_after_crash() -> None:
    """Rename repositories that appeared under a worker that was killed."""
    folder = Path(protected_paths.home()) / FOLDER
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        watch = _read(path)
        if watch is None:
            path.unlink(missing_ok=True)  # its worker was killed before it started anything
            continue
        aside, why = _looked(watch)
        if not why:
            path.unlink(missing_ok=True)
        _report(watch, aside, why)


def _read(path: Path) -> Watch | None:
    try:
        kept = json.loads(path.read_bytes())
        return Watch(**{**kept, "known": {name: Identity(*known) for name, known in kept["known"].items()}})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _begun(agent: PoolAgent) -> Watch | None:
    if not sandbox.state().works:
        return None  # its programs are not confined
    tree = PoolWorktree.objects.filter(agent=agent).first()
    return begin(agent.pk, agent.permissions, tree.path if tree is not None else None)


def begin(pool_agent_id: str, permissions: Permissions, own: str | None) -> Watch | None:
    """Record the existing repositories outside of `own`, the agent's worktree; None if the agent writes nowhere else.

    Repositories that appeared while another program runs do not count as existing. Raises RunnerFailed.
    """
    before = list(_watches)  # watches that end or begin meanwhile count, too
    fixed = repositories.fixed(permissions, own, anew=True)
    if not fixed.roots:
        return None
    others = [*before, *_watches]
    known = {
        path: identity
        for path, identity in fixed.known.items()
        if not any(within(path, other.roots) and other.is_new(fixed.known, path) for other in others)
    }
    path = Path(protected_paths.home()) / FOLDER / f"{secrets.token_hex(8)}.json"
    watch = Watch(pool_agent_id, list(fixed.roots), rules.opens_git(permissions.write_paths), known, str(path))
    watch.keep()
    _watches.append(watch)
    return watch


def _set_aside(path: str) -> str | None:
    """Rename a `.git`, or the HEAD of a directory that git takes for a repository; return the new path, None if nothing
    had to be renamed. Raises OSError."""
    parent, name = os.path.split(path)
    if name.lower() != DOT_GIT:
        parent, name = path, HEAD
    with suppress(FileNotFoundError):  # it was removed meanwhile
        at = sandbox.reached(parent)
        try:
            if name != HEAD and _is_empty(name, at):
                return None  # git ignores an empty directory
            new = f"{name}.by-agent-{secrets.token_hex(4)}"  # unpredictable, so that nobody can occupy it
            try:
                os.rename(name, new, src_dir_fd=at, dst_dir_fd=at)
            except PermissionError:
                foreign_files.grant(at)
                os.rename(name, new, src_dir_fd=at, dst_dir_fd=at)
            return os.path.join(parent, new)
        finally:
            os.close(at)
    return None


def _is_empty(name: str, parent: int) -> bool:
    with suppress(OSError), foreign_files.directory(name, parent) as at, os.scandir(at) as entries:
        return next(entries, None) is None
    return False


def _open_up(path: str) -> bool:
    """Give the owner access to a directory; return whether that was possible."""
    with suppress(OSError):
        at = sandbox.reached(path)
        try:
            return foreign_files.grant(at)
        finally:
            os.close(at)
    return False


def _report(watch: Watch, aside: Sequence[str], why: str) -> None:
    """Log what a look found, append events about it, and keep it with the agent."""
    named = [os.fsencode(path).decode(errors="replace") for path in aside[:MOST_NAMED]]
    why = why.encode(errors="replace").decode()[:1000]
    watch.unsafe = bool(why)
    if aside:
        log.warning("%d repositories appeared where an agent of the pool writes; set aside: %s", len(aside), named)
    if why:
        log.error("Run no git below %s before you looked for new repositories there: %s", ", ".join(watch.roots), why)
    try:
        with write():
            agent = PoolAgent.objects.filter(pk=watch.pool_agent_id).first()
            if agent is None:
                return
            known = agent.new_repositories or {"set_aside": []}
            newest = {"set_aside": [*named, *known["set_aside"]][:MOST_NAMED], "unsafe": why}
            agent.new_repositories = newest if any(newest.values()) else None
            agent.save(update_fields=["new_repositories"])
            if aside:
                emit_event("pool.repositories_set_aside", None, agent, now(), count=len(aside), paths=named)
            if why:
                emit_event("pool.repositories_unsafe", None, agent, now(), why=why)
    except (DatabaseError, NexusError) as error:
        log.warning("what became of new repositories could not be stored: %s", error)
