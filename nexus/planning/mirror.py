"""The files of `.nexus` beside the rows: what others wrote is taken in before a call, what a call changed is written.

The rows are the truth. A file is foreign when it is not what we wrote last; a mark in the lock file, made before the
commit and taken off when the files are written, tells what others wrote from what a crash left behind.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError, connection, transaction

from coordination.services import workspaces
from coordination.services.workspaces import ProjectDirectory
from nexus.core.clock import now
from nexus.core.database.prepared import Select, Slot, Update, insert
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError
from nexus.planning import directory, schemas
from nexus.planning.directory import TIME_LIMIT_SECONDS, Directory
from nexus.planning.documents import KEPT_FILES, Kept, TakeIn
from nexus.planning.errors import PlanningCode
from nexus.planning.models import MirroredFile

log = logging.getLogger(__name__)

CHANGE = "~"  # begins what stands last in `ours` for a change of the rows that no file has yet
TRIES = 5  # to write a file that handoffs change meanwhile
BESIDE_BYTES = 256 << 10  # of a foreign file that a handoff's call takes in
BESIDE_PATIENCE = 0.2  # seconds that a handoff's call waits for the files of its task

MAKE_ROOM = {
    schemas.PLAN.path: "Shorten or remove issues, or close the cycle with task_close.",
    schemas.TASKS.path: "Shorten the tasks, or close the cycle with task_close.",
    schemas.HISTORY.path: "Move .nexus/history.json to another name: the next cycle begins a new one.",
}
FILES: Mapping[str, Kept] = {kept.file.path: kept for kept in KEPT_FILES}

_mirrored = Select(lambda: MirroredFile.objects.filter(workspace_id=Slot("workspace_id"), machine=Slot("machine")))
_keep_ours = Update(lambda: MirroredFile.objects.filter(pk=Slot("row")), ours=Slot("ours"), behind=Slot("behind"))
_stamps: dict[tuple[str, str], tuple[str, str]] = {}  # by root and path: a large file's stamp, and the digest it had


@dataclass
class Change:
    """One call that changes a project's plan."""

    place: ProjectDirectory
    moment: datetime
    directory: Directory
    adds: Counter[str] = field(default_factory=Counter)  # by file, the bytes by which the call lengthens it at most
    took_in: bool = False  # what others wrote was taken in with it
    archived: bool = False  # history.json is to be written anew
    remove: list[str] = field(default_factory=list)  # files that end with the cycle


@contextmanager
def changing(place: ProjectDirectory, patience: float = TIME_LIMIT_SECONDS) -> Iterator[Change]:
    """A writing transaction over the rows of one project's plan; its files are what the rows say at the end.

    What others wrote into the files is taken in first, in short transactions of its own: until the last of them, who
    asks for the plan waits for the directory's lock, and the file counts as foreign. The files are made after the
    commit, so that no other writer waits for megabytes of text. Raises STATE_FILE_INVALID, STATE_UNAVAILABLE,
    CONTENT_TOO_LARGE for a file that would be larger than what is read, STATE_BUSY after `patience` seconds, with
    nothing of the caller's changed.
    """
    with Directory(place.root) as directory, directory.locked(patience):
        crashed = directory.interrupted
        look = _Look(place, directory, crashed)
        look.read()
        look.take_in_parts()
        directory.begin()  # not before: a crash until here leaves the foreign files foreign
        committing = False
        try:
            with write():
                change = Change(place, now(), directory, took_in=bool(look.foreign))
                workspaces.ensure(place, change.moment)
                look.finish(change.moment)
                yield change
                look.leave_behind(change)
                committing = True  # from here on the rows may have changed, whatever is raised
        except BaseException:
            if not (crashed or committing):
                directory.done()
            raise
        try:
            for path, text in _rendered(place, look.behind).items():
                if look.is_unchanged(path):  # else the next call takes in what was written meanwhile
                    _bring(directory, path, text)
            for path in change.remove:
                directory.remove(path)
            directory.done()
        except (NexusError, DatabaseError) as error:  # the change is committed: the next call heals
            log.warning("the files of a plan fell behind: %s", error)


def take_in(place: ProjectDirectory, patience: float = TIME_LIMIT_SECONDS) -> None:
    """Bring what others wrote into the files to the rows, and heal what a crash left behind.

    Cheap where there is neither, and then nothing is written. Raises as `changing` does.
    """
    with Directory(place.root) as directory:
        if not directory.interrupted and _Look(place, directory, False).in_step:
            return
    with changing(place, patience):
        pass


def take_in_beside(place: ProjectDirectory) -> None:
    """`take_in` before a handoff changes tasks: what others wrote before that must not undo it when it is taken in.

    It never keeps the handoff from going on, and holds up other writers for a moment at most. Not inside a transaction:
    the lock of the files comes first, and they follow the commit.
    """
    if connection.in_atomic_block:
        return
    try:
        with Directory(place.root) as found:
            if max(found.size(path) for path in FILES) > BESIDE_BYTES:
                look = _Look(place, found, found.interrupted)
                if any(found.size(path) > BESIDE_BYTES for path in look.strange):
                    return  # it would take seconds of the writers' thread; the plan's next call has a thread of its own
        take_in(place, BESIDE_PATIENCE)
    except NexusError as error:
        log.info("the files of a plan are taken in with its next call: %s", error.message)


def revision(place: ProjectDirectory) -> dict[str, list[str]]:
    """What a change of the plan or its tasks changes, be it a handoff's, once a call has written their files."""
    return {path: row.ours for path, row in _rows(place.workspace_id).items()}


def follow(place: ProjectDirectory) -> None:
    """Inside a transaction that changed tasks without the files: these follow once it is committed."""
    row = _rows(place.workspace_id).get(schemas.TASKS.path)
    if row is not None:  # else nothing was written here yet, and the first call writes it all
        _leave_behind(place.workspace_id, row.name, row, _digests(row))
        transaction.on_commit(partial(_follow, place))


def _follow(place: ProjectDirectory) -> None:
    path = schemas.TASKS.path
    try:
        with Directory(place.root) as directory, directory.locked(BESIDE_PATIENCE):
            row, found = _rows(place.workspace_id).get(path), directory.digest(path)
            if row is None or not row.behind or found not in row.ours or directory.interrupted:
                return  # it was written meanwhile, or the next call takes in what somebody else wrote
            directory.begin()
            for text in _rendered(place, {path: found}).values():
                _bring(directory, path, text)
            directory.done()
    except Exception as error:  # the handoff is committed
        log.info("the files of a plan follow with the next call: %s", error)


@dataclass
class _Look:
    """What the files held when the call began, and what of it somebody else wrote."""

    place: ProjectDirectory
    directory: Directory
    crashed: bool
    digests: dict[str, str] = field(default_factory=dict)  # by path, of those that were read
    foreign: dict[str, TakeIn] = field(default_factory=dict)  # by path, how it is taken in
    strange: list[str] = field(default_factory=list)  # the paths of what is not known as ours
    behind: dict[str, str] = field(default_factory=dict)  # by path, the digest of a file that is not what the rows say

    def __post_init__(self) -> None:
        rows = _rows(self.place.workspace_id)
        for path, kept in FILES.items():
            stamp = self.directory.stamp(path) if kept.stamped else ""
            if path in rows and kept.stamped and _stamps.get((self.place.root, path)) == (stamp, _newest(rows[path])):
                continue
            self.digests[path] = self.directory.digest(path)
            if _is_ours(rows.get(path), self.digests[path], self.crashed):
                if kept.stamped:
                    _stamps[self.place.root, path] = stamp, self.digests[path]
                continue
            self.strange.append(path)
        self._rows = rows

    def read(self) -> None:
        """Read what others wrote, outside of any transaction: it may take seconds. Raises as `changing` does."""
        for path in self.strange:
            kept, content = FILES[path], self.directory.read(path)
            self.digests[path] = _digest(content)
            if content != kept.text(self.place.workspace_id):  # else another machine of ours wrote it
                document = None if content is None else self._parsed(kept, content, self._rows.get(path))
                self.foreign[path] = kept.take_in(self.place.workspace_id, document)

    def _parsed(self, kept: Kept, content: bytes, row: MirroredFile | None) -> Any:
        """The document. One that breaks its schema is not taken in: who moves it away gets back what the rows say."""
        try:
            document = kept.file.parse(content)
            if len(content) > directory.MAX_BYTES // 4:  # written anew it may be several times as long
                size = len(schemas.text_of(document))
                if size > _most_bytes():
                    raise kept.file.fault(
                        f"as it is written here it has {_mib(size)}, and {_mib(_most_bytes())} are taken"
                    )
        except NexusError:
            if row is not None and not (row.behind and "" in row.ours):
                with write():
                    _keep_ours(row=row.pk, ours=["", _newest(row)], behind=True)
            raise
        return document

    @property
    def in_step(self) -> bool:
        """Whether every file is what we wrote last."""
        return all(digest == _newest(self._rows.get(path)) for path, digest in self.digests.items())

    def take_in_parts(self) -> None:
        """Bring the foreign files to the rows, all but the last step, in short transactions between which others
        write."""
        pieces = [piece for foreign in self.foreign.values() for piece in foreign.pieces]
        if pieces:
            with write():
                workspaces.ensure(self.place, now())
        for piece in pieces:
            with write():
                piece(now())

    def finish(self, moment: datetime) -> None:
        """Inside the transaction that notes the foreign files as taken in: the last step."""
        for foreign in self.foreign.values():
            foreign.finish(moment)

    def is_unchanged(self, path: str) -> bool:
        """Whether a file is still as it was read."""
        return path not in self.digests or self.directory.digest(path) == self.digests[path]

    def leave_behind(self, change: Change) -> None:
        """Inside the transaction: note which files it leaves behind the rows. Raises CONTENT_TOO_LARGE."""
        rows = _rows(self.place.workspace_id)
        for path, kept in FILES.items():
            if path not in self.digests and not change.archived:
                continue
            found, row = self.digests.get(path), rows.get(path)
            known = row is not None and found == _newest(row)
            if kept.stamped and known and not change.archived and path not in self.foreign:
                continue  # many megabytes, and nothing new
            self._check_size(path, change.adds[path])
            self.behind[path] = _newest(row) if found is None else found
            _leave_behind(self.place.workspace_id, path, row, [self.behind[path]])

    def _check_size(self, path: str, more: int) -> None:
        """Raises CONTENT_TOO_LARGE for a file that nobody could read back."""
        size = self.directory.size(path) + more
        if more > 0 and size > _most_bytes():
            raise NexusError(
                Code.CONTENT_TOO_LARGE,
                f".nexus/{path} would have up to {_mib(size)}, and {_mib(_most_bytes())} are taken. Nothing was "
                f"changed. {MAKE_ROOM[path]}",
                {"file": f".nexus/{path}", "bytes": size, "max_bytes": _most_bytes()},
            )


def machine() -> str:
    """Whose files they are: the same path on another machine is another directory."""
    return platform.node()[:200] or "localhost"


def _most_bytes() -> int:
    """Of a file that is written."""
    return int(directory.MAX_BYTES * (1 - directory.SLACK))


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _rows(workspace_id: str) -> dict[str, MirroredFile]:
    return {row.name: row for row in _mirrored(workspace_id=workspace_id, machine=machine())}


def _leave_behind(workspace_id: str, path: str, row: MirroredFile | None, digests: Sequence[str]) -> None:
    """Inside a transaction that changes the rows: the file has one of these texts of ours, until it is written anew."""
    ours = [*digests, f"{CHANGE}{secrets.token_hex(8)}"]
    if row is None:
        insert(MirroredFile(workspace_id=workspace_id, machine=machine(), name=path, ours=ours, behind=True))
    else:
        _keep_ours(row=row.pk, ours=ours, behind=True)


def _rendered(place: ProjectDirectory, behind: Mapping[str, str]) -> dict[str, bytes | None]:
    """The texts of files that are behind, of those that differ from the file's digest; all are noted as ours.

    They are made outside of any transaction, and again where a handoff changed the rows meanwhile. Raises STATE_BUSY
    where that happens time after time.
    """
    for _ in range(TRIES):
        before = {path: row.ours for path, row in _rows(place.workspace_id).items() if path in behind}
        texts = {path: FILES[path].text(place.workspace_id) for path in behind}
        digests = {path: _digest(text) for path, text in texts.items()}
        for path, found in behind.items():
            if texts[path] is None and found and FILES[path].stamped:
                digests[path] = found  # the history is never removed, be it empty
        with write():
            rows = _rows(place.workspace_id)
            if {path: row.ours for path, row in rows.items() if path in behind} == before:
                for path in before:
                    ours = list(dict.fromkeys([behind[path], digests[path]]))
                    _keep_ours(row=rows[path].pk, ours=ours, behind=False)
                return {path: text for path, text in texts.items() if digests[path] != behind[path]}
    raise NexusError(PlanningCode.STATE_BUSY, "Handoffs change the tasks faster than their file can be written.")


def _digests(row: MirroredFile) -> list[str]:
    return [each for each in row.ours if not each.startswith(CHANGE)]


def _newest(row: MirroredFile | None) -> str:
    return row.ours[-1] if row is not None and row.ours else ""


def _is_ours(row: MirroredFile | None, digest: str, crashed: bool) -> bool:
    """Whether a file holds what we wrote, be it before a crash."""
    if row is None:
        return digest == ""  # nothing of ours is here yet, and nothing of others
    return digest == _newest(row) or ((crashed or row.behind) and digest in row.ours)


def _bring(directory: Directory, path: str, text: bytes | None) -> None:
    if text is None:
        directory.remove(path)
    else:
        directory.write(path, text)
    if FILES[path].stamped:
        _stamps[directory.root, path] = directory.stamp(path), _digest(text)


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()
