"""The mirror of plan and tasks in `.nexus`: foreign changes are imported before a call, and a call's changes are
written.

The rows are the truth. A file is foreign when its content is not what we wrote last. A mark in the lock file, set
before the commit and removed once the files are written, distinguishes foreign content from what a crash left.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from django.db import DatabaseError, connection, transaction

from coordination.services import workspaces
from coordination.services.workspaces import ProjectDirectory
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError
from nexus.planning import directory, schemas
from nexus.planning.directory import TIME_LIMIT_SECONDS, Directory, PlanningCode
from nexus.planning.documents import KEPT_FILES, DocumentImport, MirroredDocument
from nexus.planning.models import MirroredFile

log = logging.getLogger(__name__)

CHANGE = "~"  # prefix of the last value in `ours` that marks a change of the rows which is not in the file yet
TRIES = 5  # to write a file while handoffs change it
BESIDE_BYTES = 256 << 10  # the largest foreign file that a handoff's call imports
BESIDE_PATIENCE = 0.2  # seconds that a handoff's call waits for the files of its task

MAKE_ROOM = {
    schemas.PLAN.path: "Shorten or remove issues, or close the cycle with task_close.",
    schemas.TASKS.path: "Shorten the tasks, or close the cycle with task_close.",
    schemas.HISTORY.path: "Move .nexus/history.json to another name: the next cycle begins a new one.",
}
FILES: Mapping[str, MirroredDocument] = {kept.file.path: kept for kept in KEPT_FILES}

_stamps: dict[tuple[str, str], tuple[str, str]] = {}  # by root and path: a large file's stamp, and its digest


@dataclass
class Change:
    """One call that changes a project's plan."""

    project: ProjectDirectory
    moment: datetime
    directory: Directory
    adds: Counter[str] = field(default_factory=Counter)  # by file, the most bytes that the call adds to it
    imported: bool = False  # foreign changes were imported with it
    archived: bool = False  # history.json must be written anew
    remove: list[str] = field(default_factory=list)  # files that are removed with the cycle


@contextmanager
def changing(
    project: ProjectDirectory, patience: float = TIME_LIMIT_SECONDS, *, names: Collection[str] | None = None
) -> Iterator[Change]:
    """Open a writing transaction over the rows of one project's plan, and write its files afterwards.

    The transaction has the workspace's name, which all that planning reads belongs to, unless `names` are others.
    Foreign changes of the files are imported first, in short transactions of their own: until the last of them,
    readers of the plan wait for the directory's lock, and the file counts as foreign. The files are rendered after
    the commit, so that no other writer waits for megabytes of text. Raises STATE_FILE_INVALID, STATE_UNAVAILABLE,
    CONTENT_TOO_LARGE for a file that would be larger than what is read, STATE_BUSY after `patience` seconds;
    nothing of the caller is changed then.
    """
    with Directory(project.root) as directory, directory.locked(patience, files=list(FILES)):
        crashed = directory.interrupted
        look = _Look(project, directory, crashed)
        look.read()
        look.import_parts()
        directory.begin()  # not earlier: until here, a crash leaves the foreign files foreign
        committing = False
        try:
            with write(*((project.workspace_id,) if names is None else names)):
                change = Change(project, now(), directory, imported=bool(look.foreign))
                workspaces.ensure(project, change.moment)
                look.finish(change.moment)
                yield change
                look.leave_behind(change)
                committing = True  # from here on the rows may have changed, even if an error is raised
        except BaseException:
            if not (crashed or committing):
                directory.done()
            raise
        try:
            for path, text in _rendered(project, look.behind).items():
                if look.is_unchanged(path):  # otherwise the next call imports the foreign change
                    _bring(directory, path, text)
            for path in change.remove:
                directory.remove(path)
            directory.done()
        except (NexusError, DatabaseError) as error:  # the change is committed: the next call repairs the files
            log.warning("the files of a plan fell behind: %s", error)


def import_changes(project: ProjectDirectory, patience: float = TIME_LIMIT_SECONDS) -> None:
    """Take foreign changes of the files into the rows, and repair what a crash left.

    Cheap where there is neither; nothing is written then. Raises as `changing` does.
    """
    with Directory(project.root) as directory:
        if not directory.interrupted and _Look(project, directory, False).in_step:
            return
        if directory.is_read_only:
            _import_read_only(project, directory, patience)
            return
    with changing(project, patience):
        pass


def _import_read_only(project: ProjectDirectory, directory: Directory, patience: float) -> None:
    """Import the files of a directory that this user may not write: they stay as they are."""
    with directory.locked(patience, reading=True):
        look = _Look(project, directory, directory.interrupted)
        look.read()
        look.import_parts()
        if look.strange:
            with write(project.workspace_id):
                moment = now()
                workspaces.ensure(project, moment)
                look.finish(moment)
                look.keep()


def import_beside(project: ProjectDirectory) -> None:
    """Run `import_changes` before a handoff changes tasks, so that no earlier foreign change undoes the handoff's.

    It never stops the handoff, and delays other writers for a moment at most. Do not call it inside a transaction:
    the lock of the files must be taken first, and the files are written after the commit.
    """
    if connection.in_atomic_block:
        return
    try:
        with Directory(project.root) as found:
            if max(found.size(path) for path in FILES) > BESIDE_BYTES:
                look = _Look(project, found, found.interrupted)
                if any(found.size(path) > BESIDE_BYTES for path in look.strange):
                    return  # it would take seconds on the writers' thread; the plan's next call has its own thread
        import_changes(project, BESIDE_PATIENCE)
    except NexusError as error:
        log.info("the files of a plan are imported with its next call: %s", error.message)


def revision(project: ProjectDirectory) -> list[tuple[str, str, list[str]]]:
    """Return a value that changes with every change of the plan or its tasks, also by a handoff or on another machine,
    once a call has written their files."""
    rows = MirroredFile.objects.filter(workspace_id=project.workspace_id).order_by("machine", "name")
    return list(rows.values_list("machine", "name", "ours"))


def follow(project: ProjectDirectory) -> None:
    """Write the files after the commit of the current transaction, which changes tasks."""
    row = _rows(project.workspace_id).get(schemas.TASKS.path)
    if row is not None:  # otherwise nothing was written here yet, and the first call writes all of it
        _leave_behind(project.workspace_id, row.name, row, _digests(row))
        transaction.on_commit(partial(_follow, project))


def _follow(project: ProjectDirectory) -> None:
    path = schemas.TASKS.path
    try:
        with Directory(project.root) as directory, directory.locked(BESIDE_PATIENCE, files=[path]):
            row, found = _rows(project.workspace_id).get(path), directory.digest(path)
            if row is None or not row.behind or found not in row.ours or directory.interrupted:
                return  # it was written meanwhile, or the next call imports a foreign change
            directory.begin()
            for text in _rendered(project, {path: found}).values():
                _bring(directory, path, text)
            directory.done()
    except Exception as error:  # the handoff is committed
        log.info("the files of a plan follow with the next call: %s", error)


@dataclass
class _Look:
    """The files at the beginning of a call, and which of them are foreign."""

    project: ProjectDirectory
    directory: Directory
    crashed: bool
    digests: dict[str, str] = field(default_factory=dict)  # by path, of the files that were read
    foreign: dict[str, DocumentImport] = field(default_factory=dict)  # by path, the steps that import it
    strange: list[str] = field(default_factory=list)  # the paths of files that are not known as ours
    behind: dict[str, str] = field(default_factory=dict)  # by path, the digest of a file that differs from the rows

    def __post_init__(self) -> None:
        rows = _rows(self.project.workspace_id)
        for path, kept in FILES.items():
            stamp = self.directory.stamp(path) if kept.stamped else ""
            if path in rows and kept.stamped and _stamps.get((self.project.root, path)) == (stamp, _newest(rows[path])):
                continue
            self.digests[path] = self.directory.digest(path)
            if _is_ours(rows.get(path), self.digests[path], self.crashed):
                if kept.stamped:
                    _stamps[self.project.root, path] = stamp, self.digests[path]
                continue
            self.strange.append(path)
        self._rows = rows

    def read(self) -> None:
        """Read the foreign files, outside of any transaction, as it may take seconds. Raises as `changing` does."""
        for path in self.strange:
            kept, content = FILES[path], self.directory.read(path)
            self.digests[path] = _digest(content)
            if content != kept.text(self.project.workspace_id):  # otherwise another machine wrote the same
                document = None if content is None else self._parsed(kept, content, self._rows.get(path))
                self.foreign[path] = kept.import_of(self.project.workspace_id, document)

    def _parsed(self, kept: MirroredDocument, content: bytes, row: MirroredFile | None) -> Any:
        """Return the document. One that breaks its schema is not imported: if a person moves it away, the rows are
        written anew."""
        try:
            document = kept.file.parse(content)
            if len(content) > directory.MAX_BYTES // 4:  # rendered by us it may be several times as long
                size = len(kept.file.text(document))
                if size > _most_bytes():
                    raise kept.file.fault(
                        f"as it is written here it has {_mib(size)}, and {_mib(_most_bytes())} are taken"
                    )
        except NexusError:
            if row is not None and not (row.behind and "" in row.ours):
                with write(self.project.workspace_id):
                    _keep_ours(row, ["", _newest(row)], behind=True)
            raise
        return document

    @property
    def in_step(self) -> bool:
        """Whether every file is what we wrote last."""
        return all(digest == _newest(self._rows.get(path)) for path, digest in self.digests.items())

    def import_parts(self) -> None:
        """Import the foreign files except for the last step, in short transactions, so that others can write in
        between."""
        pieces = [piece for foreign in self.foreign.values() for piece in foreign.pieces]
        if pieces:
            with write(self.project.workspace_id):
                workspaces.ensure(self.project, now())
        for piece in pieces:
            with write(self.project.workspace_id):
                piece(now())

    def finish(self, moment: datetime) -> None:
        """Do the last step. Call it in the transaction that records the foreign files as imported."""
        for foreign in self.foreign.values():
            foreign.finish(moment)

    def is_unchanged(self, path: str) -> bool:
        """Return whether a file still has the content that was read."""
        return path not in self.digests or self.directory.digest(path) == self.digests[path]

    def leave_behind(self, change: Change) -> None:
        """Record which files are behind the rows. Call it inside the transaction. Raises CONTENT_TOO_LARGE."""
        rows = _rows(self.project.workspace_id)
        for path, kept in FILES.items():
            if path not in self.digests and not change.archived:
                continue
            found, row = self.digests.get(path), rows.get(path)
            known = row is not None and found == _newest(row)
            if kept.stamped and known and not change.archived and path not in self.foreign:
                continue  # many megabytes without a change
            self._check_size(path, change.adds[path])
            self.behind[path] = _newest(row) if found is None else found
            _leave_behind(self.project.workspace_id, path, row, [self.behind[path]])

    def keep(self) -> None:
        """Record the foreign files as ours. Call it inside the transaction."""
        for path in self.strange:
            _keep(self.project.workspace_id, path, self._rows.get(path), [self.digests[path]], behind=False)

    def _check_size(self, path: str, more: int) -> None:
        """Check that a file stays small enough to be read back. Raises CONTENT_TOO_LARGE."""
        size = self.directory.size(path) + more
        if more > 0 and size > _most_bytes():
            raise NexusError(
                Code.CONTENT_TOO_LARGE,
                f".nexus/{path} would have up to {_mib(size)}, and {_mib(_most_bytes())} are taken. Nothing was "
                f"changed. {MAKE_ROOM[path]}",
                {"file": f".nexus/{path}", "bytes": size, "max_bytes": _most_bytes()},
            )


def _most_bytes() -> int:
    """Return the largest size of a file that is written."""
    return int(directory.MAX_BYTES * (1 - directory.SLACK))


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _rows(workspace_id: str) -> dict[str, MirroredFile]:
    rows = MirroredFile.objects.filter(workspace_id=workspace_id, machine=directory.machine())
    return {row.name: row for row in rows}


def _leave_behind(workspace_id: str, path: str, row: MirroredFile | None, digests: Sequence[str]) -> None:
    """Record that a file has one of these texts of ours until it is written anew. Call it in a transaction that
    changes rows."""
    _keep(workspace_id, path, row, [*digests, f"{CHANGE}{secrets.token_hex(8)}"], behind=True)


def _keep(workspace_id: str, path: str, row: MirroredFile | None, ours: list[str], *, behind: bool) -> None:
    if row is None:
        machine = directory.machine()
        MirroredFile.objects.create(workspace_id=workspace_id, machine=machine, name=path, ours=ours, behind=behind)
    else:
        _keep_ours(row, ours, behind=behind)


def _keep_ours(row: MirroredFile, ours: list[str], *, behind: bool) -> None:
    MirroredFile.objects.filter(pk=row.pk).update(ours=ours, behind=behind)


def _rendered(project: ProjectDirectory, behind: Mapping[str, str]) -> dict[str, bytes | None]:
    """Return the new texts of the files that are behind and have changed; record all of them as ours.

    They are rendered outside of any transaction, and again where a handoff changed the rows meanwhile. Raises
    STATE_BUSY after TRIES times.
    """
    for _ in range(TRIES):
        before = {path: row.ours for path, row in _rows(project.workspace_id).items() if path in behind}
        texts = {path: FILES[path].text(project.workspace_id) for path in behind}
        digests = {path: _digest(text) for path, text in texts.items()}
        for path, found in behind.items():
            if texts[path] is None and found and FILES[path].stamped:
                digests[path] = found  # the history is never removed, even if it is empty
        with write(project.workspace_id):
            rows = _rows(project.workspace_id)
            if {path: row.ours for path, row in rows.items() if path in behind} == before:
                for path in before:
                    ours = list(dict.fromkeys([behind[path], digests[path]]))
                    _keep_ours(rows[path], ours, behind=False)
                return {path: text for path, text in texts.items() if digests[path] != behind[path]}
    raise NexusError(PlanningCode.STATE_BUSY, "Handoffs change the tasks faster than their file can be written.")


def _digests(row: MirroredFile) -> list[str]:
    return [each for each in row.ours if not each.startswith(CHANGE)]


def _newest(row: MirroredFile | None) -> str:
    return row.ours[-1] if row is not None and row.ours else ""


def _is_ours(row: MirroredFile | None, digest: str, crashed: bool) -> bool:
    """Return whether a file has content that we wrote, perhaps before a crash."""
    if row is None:
        return digest == ""  # no file yet, neither ours nor a foreign one
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
