"""The record of what `nexus setup` wrote for a project, with each file's text before: `{home}/setup/<hash of the
project>.json`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock

from coordination.paths import moved
from nexus.core import files
from nexus.core.coding_clients import CLIENTS, Format
from nexus.core.config import CoreSettings
from nexus.core.files import Change
from nexus.core.operations.errors import NexusError
from nexus.hooks import client_entries, client_files
from nexus.hooks.client_files import Edit
from nexus.hooks.config_text import FORMATS
from nexus.hooks.harness import setup_file
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
                put_back = _put_back(text, self.before or "", self.after or "")
                text = (without_paragraph(text) if put_back is None else put_back) or None
            elif kind == "whole" and text.replace("\r\n", "\n") != self.after:
                client_files.refuse(file, "was changed since Nexus wrote it")
            elif kind == "whole":
                return self.before
            else:
                text = self._without_entry(file, text, kind, client)
            if text is None:
                return None
        return text

    def is_of_another(self, file: Path) -> bool:
        """Return whether an entry of this file leads to another store now: another home's setup, or a person, wrote
        it. Raises CONFIG_ERROR if the file cannot be read."""
        text = client_files.read(file)
        return any(self._has_moved(file, text or "", kind, client) for kind, client in self.parts)

    def _has_moved(self, file: Path, text: str, kind: Kind, client: str) -> bool:
        now, ours = (_entry(file, each, kind, client) for each in (text, self.after or ""))
        return bool(now and ours) and client_entries.store_of(now) != client_entries.store_of(ours)

    def _without_entry(self, file: Path, text: str, kind: Kind, client: str) -> str | None:
        """Return the text without an entry, or with the one that was there before."""
        if self._has_moved(file, text, kind, client):
            return text
        format = format_of(kind, client)
        earlier = client_files.parse(file, format, self.before or "")
        entry = _entry(file, self.before or "", kind, client)
        edit: Edit
        if kind == "server":
            edit = client_files.put_server(client, entry) if entry else client_files.drop_server(client, earlier)
        else:
            edit = client_files.put_hooks(client, entry) if entry else client_files.drop_hooks(client, earlier)
        if entry:
            lines = ((each or "").splitlines(keepends=True) for each in (self.before, self.after))
            with contextlib.suppress(NexusError):
                if (put_back := _put_back(text, *lines)) is not None:
                    client_files.parse(file, format, put_back)
                    return put_back
        after = client_files.edited(file, format, text, edit).after or ""
        return self.before if earlier.is_empty and FORMATS[format](after).is_empty else after


@dataclass
class Record:
    """What setup wrote for one project."""

    project_root: str
    files: dict[str, Written] = field(default_factory=dict)  # by path, in the order of writing
    guard: bool = False  # whether it installed the commit guard
    hub: dict[str, Any] = field(default_factory=dict)  # how it started the hub: in one record of a home at most
    agents: dict[str, str] = field(default_factory=dict)  # the agents' ids, by client


def paths(home: Path) -> list[Path]:
    """Return the paths of all records."""
    return sorted((home / "setup").glob("*.json"))


@contextlib.contextmanager
def lock(home: Path) -> Iterator[None]:
    """Allow one process of this home at a time to set up."""
    private_directory(home / "setup")
    with FileLock(home / "setup" / "lock", mode=0o600):
        yield


def load(home: Path, project_root: Path) -> Record:
    """Return a project's record; an empty one if there is none. Raises CONFIG_ERROR if it cannot be read."""
    file = setup_file(home, project_root)
    return read(file) if file.exists() else Record(str(project_root))


def untouched(home: Path, project_root: Path) -> set[str]:
    """Return the paths of the files that are as setup wrote them for a project."""
    found = set()
    with contextlib.suppress(NexusError):
        for name, written in load(home, project_root).files.items():
            with contextlib.suppress(NexusError):
                if client_files.read(Path(name)) == written.after:
                    found.add(name)
    return found


def readable(home: Path) -> Iterator[tuple[Path, Record]]:
    """Yield the records that can be read, each with its path; doctor names the others."""
    for file in paths(home):
        with contextlib.suppress(NexusError):
            yield file, read(file)


def hub_of(home: Path) -> dict[str, Any]:
    """Return how setup started the hub of this home, in whichever project; empty if it did not."""
    return next((record.hub for _, record in readable(home) if record.hub), {})


def _of_others(home: Path, record: Record, *, that_exist: bool = False) -> dict[str, Written]:
    """Return the files that setup wrote for other projects, too; on request only for those that were not deleted."""
    found: dict[str, Written] = {}
    for file, other in readable(home):
        if file != setup_file(home, Path(record.project_root)) and (
            not that_exist or Path(other.project_root).is_dir()
        ):
            found |= other.files
    return found


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many items two sequences share at their beginning."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _put_back(text: str, before: Sequence[str], after: Sequence[str]) -> str | None:
    """Return `text` without the change from `before` to `after`, which are compared by letters or by lines; None unless
    the changed part is in it exactly once."""
    head = _shared(before, after)
    tail = _shared(before[head:][::-1], after[head:][::-1])
    old, new = ("".join(each[head : len(each) - tail]) for each in (before, after))
    return text.replace(new, old) if new and text.count(new) == 1 else None


def format_of(kind: Kind, client: str) -> Format:
    """Return the format of the file with a client's entry."""
    return CLIENTS[client].format if kind == "server" else "json"


def _entry(file: Path, text: str, kind: Kind, client: str) -> Any:
    """Return a client's entry for Nexus in a text, or the command line of its hooks; None if there is none."""
    if kind not in ("server", "hooks"):
        return None
    document = client_files.parse(file, format_of(kind, client), text)
    if kind == "hooks":
        return client_files.installed(document, client)
    found = document.get(client_files.server_path(client))
    return found if isinstance(found, dict) else None


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
    file = setup_file(home, Path(record.project_root))
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
    earlier, others = dict(record.files), _of_others(home, record)
    for file in {str(piece.file) for piece in pieces} & others.keys():  # what another project wrote serves this one
        record.files.setdefault(file, others[file])
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


def is_of_another(record: Record) -> bool:
    """Return whether another home serves this project now."""
    for name, written in record.files.items():
        with contextlib.suppress(NexusError):
            if Path(name).is_relative_to(record.project_root) and written.is_of_another(Path(name)):
                return True
    return False


def undoing(home: Path, record: Record) -> tuple[dict[Path, Change], list[NexusError], list[Path]]:
    """Return the changes that undo what was written, the last first; the reasons why other files stay as they are; and
    the files that keep what another project or another home uses."""
    changes: dict[Path, Change] = {}
    refused: list[NexusError] = []
    kept: list[Path] = []
    used = _of_others(home, record, that_exist=True).keys()
    moved = is_of_another(record)
    for name, written in reversed(record.files.items()):
        file = Path(name)
        try:
            text = client_files.read(file)
            stays = name in used or (moved and all(kind in ("paragraph", "whole") for kind, _ in written.parts))
            changes[file] = Change(file, text, text if stays else written.reverted(file, text))
            if text == changes[file].after and text not in (None, written.before):
                kept.append(file)
        except NexusError as error:
            refused.append(error)
    return changes, refused, kept


def _missing(file: Path) -> list[Path]:
    """Return the missing directories above a file, the outermost first."""
    return [parent for parent in reversed(file.parents) if not parent.exists()]


def _remove_empty(made: Sequence[str]) -> None:
    for directory in reversed(made):
        with contextlib.suppress(OSError):  # it is not empty
            Path(directory).rmdir()


def follow(old: str, new: str) -> None:
    """Let the records of a project whose directory was renamed, and of those below it, lead to its new path."""
    home = CoreSettings.current().home
    if not (home / "setup").is_dir():
        return
    with lock(home):
        for file, record in readable(home):
            if (root := moved(record.project_root, old, new)) == record.project_root:
                continue
            record.project_root = root
            record.files = {moved(name, old, new): written for name, written in record.files.items()}
            for written in record.files.values():
                written.made = [moved(name, old, new) for name in written.made]
            save(home, record)
            file.unlink()
