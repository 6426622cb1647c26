"""Changes to a client's configuration file: the rest of it stays, the change is shown, a backup is kept."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from nexus.core import files, foreign_files
from nexus.core.coding_clients import CLIENTS, Format
from nexus.core.files import Change
from nexus.core.logs import redact
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.validation import refuse_constant
from nexus.hooks import client_entries
from nexus.hooks.client_entries import SERVER
from nexus.hooks.harness import PLANNING
from nexus.hooks.signal_files import private_directory

Document = Any  # a JSON object as Python reads it, or tomlkit's document
Edit = Callable[[Document], None]


def plan(file: Path, format: Format, edit: Edit) -> Change:
    """Return the change that `edit` makes to the document in `file`.

    Raises CONFIG_ERROR, which names the file, if it cannot be read or has another format. Writes nothing.
    """
    return edited(file, format, read(file), edit)


def edited(file: Path, format: Format, before: str | None, edit: Edit) -> Change:
    """Return the change that `edit` makes to a document with this text. Raises CONFIG_ERROR as `plan` does."""
    document = parse(file, format, before or "")
    untouched = copy.deepcopy(document)
    try:
        edit(document)
    except _WrongShape as problem:
        refuse(file, str(problem))
    if document == untouched:
        return Change(file, before, before)
    with contextlib.suppress(ValueError, RecursionError):
        after = client_entries.dump(format, document, _indent(before or ""))
        if _plain(parse(file, format, after.encode().decode())) == _plain(document):
            return Change(file, before, after)
    refuse(file, "holds something that would not survive a rewrite")


def read(file: Path) -> str | None:
    """Return a file's text, None if there is no file. Raises CONFIG_ERROR, also for a link: `client_entries.locate`
    followed those of the user."""
    with _refusing(file, "read"), contextlib.suppress(FileNotFoundError):
        return foreign_files.read_file(str(file)).decode("utf-8")
    return None


def apply(change: Change, *, backups: Path | None = None) -> Path | None:
    """Write a change as `write` does; return the backup's path, None for a new file.

    The backup is made beside the file, or in the directory `backups`.
    """
    file, backup = change.file, None
    if change.before is not None:
        _check_unchanged(change)
        name = f"{file.name}.{datetime.now():%Y%m%d-%H%M%S-%f}.backup"
        with _refusing(file):
            if backups:
                private_directory(backups)
            backup = (backups.resolve() if backups else file.parent) / name
            foreign_files.replace(str(backup), change.before.encode(), mode=_mode(file, change.before))
    write(change)
    return backup


def write(change: Change, *, new_mode: int = files.PRIVATE) -> None:
    """Write a change in one step; delete the file if nothing is left of it.

    A file with a key is readable only by its owner; a new file has `new_mode`. Raises CONFIG_ERROR if the file has
    changed since it was planned, or cannot be written.
    """
    file = change.file
    _check_unchanged(change)
    with _refusing(file):
        if change.after is None:
            foreign_files.unlink(str(file))
            return
        mode = new_mode if change.before is None else _mode(file, change.after)
        foreign_files.replace(str(file), change.after.encode(), mode=mode, may_make=lambda _: True)


def _check_unchanged(change: Change) -> None:
    if read(change.file) != change.before:
        refuse(change.file, "was changed by somebody else meanwhile; run this again")


@contextlib.contextmanager
def _refusing(file: Path, done: str = "written") -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        if getattr(error, "errno", None) in (errno.ELOOP, errno.ENOTDIR):
            refuse(file, "is a link, or is behind one, and no link of a project is followed")
        why = getattr(error, "strerror", None) or type(error).__name__
        refuse(file, f"cannot be {done} ({why})")


def _mode(file: Path, text: str) -> int:
    """Return the mode of `file`, without others' rights if `text` contains a key."""
    mode = stat.S_IMODE(file.lstat().st_mode)
    return mode & 0o700 if redact(text) != text else mode


# Edits


def put_server(client: str, entry: Mapping[str, Any]) -> Edit:
    """Return an edit that sets Nexus's entry among the client's MCP servers."""

    def edit(document: Document) -> None:
        _object(document, CLIENTS[client].servers)[SERVER] = dict(entry)

    return edit


def drop_server(client: str) -> Edit:
    """Return an edit that removes Nexus's entry, and the object around it if it holds nothing else."""

    def edit(document: Document) -> None:
        key = CLIENTS[client].servers
        if key in document and SERVER in _object(document, key):
            del document[key][SERVER]
            if not document[key]:
                del document[key]

    return edit


def server(document: Document, client: str) -> Mapping[str, Any] | None:
    """Return Nexus's entry among the client's MCP servers; None if there is none."""
    servers = document.get(CLIENTS[client].servers)
    entry = servers.get(SERVER) if isinstance(servers, Mapping) else None
    return entry if isinstance(entry, Mapping) else None


def put_hooks(client: str, command: str) -> Edit:
    """Return an edit that sets Nexus's hooks and replaces existing ones."""

    def edit(document: Document) -> None:
        drop_hooks(client)(document)
        if client == "cursor":
            document.setdefault("version", 1)
        hooks = _object(document, "hooks")
        for event, entry in client_entries.hook_entries(client, command).items():
            _list(hooks, event).append(entry)

    return edit


def drop_hooks(client: str) -> Edit:
    """Return an edit that removes Nexus's hooks, and the objects that held nothing else."""

    def edit(document: Document) -> None:
        if "hooks" not in document:
            return
        hooks = _object(document, "hooks")
        found = False
        for event in client_entries.hook_entries(client, PLANNING):  # these are all of them
            if event not in hooks:
                continue
            before = _list(hooks, event)
            after = [kept for group in before for kept in _without_ours(group, client)]
            if after != before:
                found = True
                hooks[event] = after
                if not after:
                    del hooks[event]
        if found and not hooks:
            del document["hooks"]

    return edit


def installed(document: Document, client: str) -> str | None:
    """Return the command line of Nexus's hooks in a document; None if there are none."""
    hooks = document.get("hooks")
    groups = (
        [group for one in hooks.values() if isinstance(one, list) for group in one] if isinstance(hooks, dict) else []
    )
    for group in filter(lambda one: isinstance(one, dict), groups):
        inner = group.get("hooks")
        for handler in (group, *(inner if isinstance(inner, list) else ())):
            if isinstance(handler, dict) and client_entries.is_ours(handler.get("command"), client):
                return str(handler["command"])
    return None


def _without_ours(group: Any, client: str) -> list[Any]:
    """Return a group of hooks without Nexus's; empty if nothing is left of it."""
    if not isinstance(group, dict):
        return [group]
    if client_entries.is_ours(group.get("command"), client):
        return []
    handlers = group.get("hooks")
    if not isinstance(handlers, list):
        return [group]
    others = [
        one for one in handlers if not (isinstance(one, dict) and client_entries.is_ours(one.get("command"), client))
    ]
    if len(others) == len(handlers):
        return [group]
    return [{**group, "hooks": others}] if others else []


# Parsing and types


class _WrongShape(Exception):
    """A part of the document has a type that the client itself would not accept."""


def _object(parent: Document, key: str) -> Document:
    if not isinstance(parent.setdefault(key, {}), dict):
        raise _WrongShape(f"has a {key!r} that is no object")
    return parent[key]


def _list(parent: Document, key: str) -> list[Any]:
    found = parent.setdefault(key, [])
    if not isinstance(found, list):
        raise _WrongShape(f"has a {key!r} that is no list")
    return found


def parse(file: Path, format: Format, text: str) -> Document:
    """Return the document in a file's text. Raises CONFIG_ERROR if it has another format."""
    try:
        if format == "toml":
            return _toml(text)
        document = json.loads(text, object_pairs_hook=_distinct, parse_constant=refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError):
        refuse(file, f"is not well-formed {format.upper()} (comments, a stray comma?)")
    if not isinstance(document, dict):
        refuse(file, "is no JSON object")
    return document


def _toml(text: str) -> Document:
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ValueError(str(error)) from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key stands twice")  # one of them would be lost
    return document


def _plain(document: Document) -> Any:
    return document.unwrap() if hasattr(document, "unwrap") else document


def _indent(text: str) -> str | int:
    """Return the indentation of a JSON text; two spaces if it has none."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else 2


def refuse(file: Path, why: str) -> NoReturn:
    """Raise CONFIG_ERROR: say that a file stays as it is, and why."""
    raise NexusError(Code.CONFIG_ERROR, f"{file} {why}. It was left as it is.", {"file": str(file)})
