"""The record of what `nexus setup` wrote for a project, with each file's text before: `{home}/setup/<hash of the
project>.json`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from nexus.core import files
from nexus.core.coding_clients import CLIENTS, Format
from nexus.core.files import Change
from nexus.core.operations.errors import NexusError
from nexus.hooks import client_files
from nexus.hooks.client_files import Edit
from nexus.hooks.setup_pieces import Kind, Piece, without_paragraph
from nexus.hooks.signal_files import private_directory

PUBLIC = 0o644  # the mode of a new file that a repository may hold


@dataclass
class Written:
    """A file that setup wrote: its text before and after, the pieces in it, and the directories created for it."""

    before: str | None
    after: str | None
    parts: list[tuple[Kind, str]]
    made: list[str]

    def reverted(self, file: Path, text: str | None) -> str | None:
        """Return this file's text as it would be if setup had never written it; None for no file.

        If others changed it since, only setup's pieces are removed. Raises CONFIG_ERROR if that cannot be determined.
        """
        if text == self.after:
            return self.before
        if text is None or text == self.before:
            return text
        for kind, client in self.parts:
            if kind == "paragraph":
                text = without_paragraph(text) or None
            elif kind == "whole":
                client_files.refuse(file, "was changed since Nexus wrote it")
            else:
                format = CLIENTS[client].format if kind == "server" else "json"
                text = client_files.edited(file, format, text, self._removal(file, kind, client, format)).after
            if text is None:
                return None
        return text

    def _removal(self, file: Path, kind: Kind, client: str, format: Format) -> Edit:
        """Return an edit that removes a piece of setup, and restores the entry that was there before."""
        earlier = client_files.parse(file, format, self.before or "")
        if kind == "server":
            entry = client_files.server(earlier, client)
            return client_files.drop_server(client) if entry is None else client_files.put_server(client, entry)
        command = client_files.installed(earlier, client)
        return client_files.drop_hooks(client) if command is None else client_files.put_hooks(client, command)


@dataclass
class Record:
    """What setup wrote for one project."""

    project_root: str
    files: dict[str, Written] = field(default_factory=dict)  # by path, in the order of writing
    guard: bool = False  # whether it installed the commit guard
    hub: dict[str, Any] = field(default_factory=dict)  # how it started the hub


def path(home: Path, project_root: Path) -> Path:
    """Return the path of a project's record."""
    return home / "setup" / f"{hashlib.sha256(os.fsencode(project_root)).hexdigest()[:32]}.json"


def has_other_projects(home: Path, project_root: Path) -> bool:
    """Return whether setup has written for another project whose agents use the same hub."""
    mine = path(home, project_root)
    return any(file != mine for file in mine.parent.glob("*.json"))


@contextlib.contextmanager
def lock(home: Path) -> Iterator[None]:
    """Allow one process of this home at a time to set up."""
    private_directory(home / "setup")
    with FileLock(home / "setup" / "lock", mode=0o600):
        yield


def load(home: Path, project_root: Path) -> Record:
    """Return a project's record; an empty one if there is none. Raises CONFIG_ERROR if it cannot be read."""
    file = path(home, project_root)
    return read(file) if file.exists() else Record(str(project_root))


def read(file: Path) -> Record:
    """Return the record in a file. Raises CONFIG_ERROR if it cannot be read."""
    try:
        held = json.loads(file.read_bytes())
        written = {name: Written(**each) for name, each in held.pop("files").items()}
        return Record(files=written, **held)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        client_files.refuse(file, "is no record of `nexus setup`")


def save(home: Path, record: Record) -> None:
    """Store a record; an empty one is deleted."""
    file = path(home, Path(record.project_root))
    if record.files or record.guard or record.hub:
        files.replace(file, json.dumps(asdict(record), indent=1).encode(), durable=True)
    else:
        file.unlink(missing_ok=True)


def plan(pieces: Sequence[Piece]) -> tuple[dict[Path, Change], list[tuple[Piece, NexusError]]]:
    """Return the change of each file that needs one, and the pieces that cannot be put in, with the reason.

    A file with a piece that cannot be put in is not changed at all.
    """
    changes: dict[Path, Change] = {}
    refused: list[tuple[Piece, NexusError]] = []
    for piece in pieces:
        file = piece.file
        try:
            known = changes[file] if file in changes else Change(file, text := client_files.read(file), text)
            changes[file] = Change(file, known.before, piece.put(known.after).after)
        except NexusError as error:
            refused.append((piece, error))
    unread = {piece.file for piece, _ in refused}
    return {file: change for file, change in changes.items() if change.diff and file not in unread}, refused


def write(home: Path, record: Record, changes: Sequence[Change], pieces: Sequence[Piece]) -> None:
    """Write the changes, all or none, and store the record. Raises CONFIG_ERROR and leaves every file unchanged
    then."""
    earlier = dict(record.files)
    for change in changes:
        known = record.files.get(str(change.file))
        before = known.reverted(change.file, change.before) if known else change.before
        parts = [(piece.kind, piece.client) for piece in pieces if piece.file == change.file]
        made = [*(known.made if known else ()), *map(str, _missing(change.file))]
        record.files[str(change.file)] = Written(before, change.after, parts, made)
    save(home, record)  # first, so that a killed run can be undone
    done: list[Change] = []
    try:
        for change in changes:
            kind = record.files[str(change.file)].parts[0][0]
            client_files.write(change, new_mode=PUBLIC if kind in ("paragraph", "whole") else files.PRIVATE)
            done.append(change)
    except BaseException:
        for change in reversed(done):
            with contextlib.suppress(NexusError):
                client_files.write(Change(change.file, change.after, change.before))
        for change in changes:
            _remove_empty(record.files[str(change.file)].made)
        record.files = earlier
        save(home, record)
        raise


def undo(home: Path, record: Record, files_to_undo: dict[Path, Change]) -> None:
    """Write the changes of `undoing`. Raises CONFIG_ERROR; the record keeps what was not undone."""
    for file, change in files_to_undo.items():
        if change.before != change.after:
            client_files.write(change)
        _remove_empty(record.files.pop(str(file)).made)
        save(home, record)


def undoing(record: Record) -> tuple[dict[Path, Change], list[NexusError]]:
    """Return the changes that undo what was written, the last first, and the reasons why other files stay as they
    are."""
    changes: dict[Path, Change] = {}
    refused: list[NexusError] = []
    for name, written in reversed(record.files.items()):
        file = Path(name)
        try:
            text = client_files.read(file)
            changes[file] = Change(file, text, written.reverted(file, text))
        except NexusError as error:
            refused.append(error)
    return changes, refused


def _missing(file: Path) -> list[Path]:
    """Return the missing directories above a file, the outermost first."""
    return [parent for parent in reversed(file.parents) if not parent.exists()]


def _remove_empty(made: Sequence[str]) -> None:
    for directory in reversed(made):
        with contextlib.suppress(OSError):  # it is not empty
            Path(directory).rmdir()
