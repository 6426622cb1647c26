"""Changing a client's configuration file: everything else in it stays, the change is shown, a backup is kept."""

from __future__ import annotations

import contextlib
import copy
import json
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from nexus.core import files
from nexus.core.logs import redact
from nexus.core.operations.errors import Code, NexusError
from nexus.core.operations.validation import refuse_constant
from nexus.hooks import clients
from nexus.hooks.clients import SERVER, Format
from nexus.hooks.harness import PLANNING
from nexus.hooks.signal_files import private_directory

Document = Any  # a JSON object as Python reads it, or tomlkit's document
Edit = Callable[[Document], None]


@dataclass(frozen=True)
class Change:
    """What a file holds, and what it would hold."""

    file: Path
    before: str | None  # None where there is no file
    after: str

    @property
    def diff(self) -> str:
        """The change for people to read; empty when there is none."""
        return files.diff(self.file, self.before, self.after)


def plan(file: Path, format: Format, edit: Edit) -> Change:
    """The change that `edit` makes to the document in `file`.

    Raises CONFIG_ERROR, naming the file, when it cannot be read or is not of its format; nothing is touched then.
    """
    file = file.resolve()  # a linked dotfile stays a link
    try:
        before = file.read_bytes().decode("utf-8") if file.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        _refuse(file, f"cannot be read ({type(error).__name__})")
    document = _parse(file, format, before or "")
    untouched = copy.deepcopy(document)
    try:
        edit(document)
    except _WrongShape as problem:
        _refuse(file, str(problem))
    if document == untouched:
        return Change(file, before, before or "")
    with contextlib.suppress(ValueError, RecursionError):
        after = clients.dump(format, document, _indent(before or ""))
        if _plain(_parse(file, format, after.encode().decode())) == _plain(document):
            return Change(file, before, after)
    _refuse(file, "holds something that would not survive a rewrite")


def apply(change: Change, *, backups: Path | None = None) -> Path | None:
    """Write a change in one step; the backup's path, None for a new file.

    The backup stands beside the file, or in the directory `backups`. What holds a key is for its owner's eyes alone.
    Raises CONFIG_ERROR when the file changed since it was planned, or cannot be written.
    """
    file = change.file
    try:
        current = file.read_bytes().decode("utf-8") if file.exists() else None
        if current != change.before:
            _refuse(file, "was changed by somebody else meanwhile; run this again")
        file.parent.mkdir(parents=True, exist_ok=True)
        backup, mode = None, files.PRIVATE  # a key may stand in it
        if current is not None:
            mode = _mode(file, change.after)
            name = f"{file.name}.{datetime.now():%Y%m%d-%H%M%S-%f}.backup"
            if backups:
                private_directory(backups)
            backup = (backups or file.parent) / name
            files.replace(backup, current.encode(), mode=_mode(file, current))
        files.replace(file, change.after.encode(), mode=mode)
    except (OSError, UnicodeDecodeError) as error:
        _refuse(file, f"cannot be written ({type(error).__name__})")
    return backup


def _mode(file: Path, text: str) -> int:
    """The mode of `file`, without others' rights where `text` holds a key."""
    mode = stat.S_IMODE(file.stat().st_mode)
    return mode & 0o700 if redact(text) != text else mode


# What is put in and taken out


def put_server(client: str, entry: Mapping[str, Any]) -> Edit:
    """Set Nexus's entry among the client's MCP servers."""

    def edit(document: Document) -> None:
        _object(document, clients.CLIENTS[client].servers)[SERVER] = dict(entry)

    return edit


def drop_server(client: str) -> Edit:
    """Remove Nexus's entry, and the object that held it when it held nothing else."""

    def edit(document: Document) -> None:
        key = clients.CLIENTS[client].servers
        if key in document and SERVER in _object(document, key):
            del document[key][SERVER]
            if not document[key]:
                del document[key]

    return edit


def put_hooks(client: str, command: str) -> Edit:
    """Set Nexus's hooks, in place of any there are."""

    def edit(document: Document) -> None:
        drop_hooks(client)(document)
        if client == "cursor":
            document.setdefault("version", 1)
        hooks = _object(document, "hooks")
        for event, entry in clients.hook_entries(client, command).items():
            _list(hooks, event).append(entry)

    return edit


def drop_hooks(client: str) -> Edit:
    """Remove Nexus's hooks, and what held nothing else."""

    def edit(document: Document) -> None:
        if "hooks" not in document:
            return
        hooks = _object(document, "hooks")
        found = False
        for event in clients.hook_entries(client, PLANNING):  # with it, there are the most
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
    """The command line of Nexus's hooks in a document; None where there are none."""
    hooks = document.get("hooks")
    groups = (
        [group for one in hooks.values() if isinstance(one, list) for group in one] if isinstance(hooks, dict) else []
    )
    for group in filter(lambda one: isinstance(one, dict), groups):
        inner = group.get("hooks")
        for handler in (group, *(inner if isinstance(inner, list) else ())):
            if isinstance(handler, dict) and clients.is_ours(handler.get("command"), client):
                return str(handler["command"])
    return None


def _without_ours(group: Any, client: str) -> list[Any]:
    """A group of hooks without Nexus's; nothing when nothing is left of it."""
    if not isinstance(group, dict):
        return [group]
    if clients.is_ours(group.get("command"), client):
        return []
    handlers = group.get("hooks")
    if not isinstance(handlers, list):
        return [group]
    others = [one for one in handlers if not (isinstance(one, dict) and clients.is_ours(one.get("command"), client))]
    if len(others) == len(handlers):
        return [group]
    return [{**group, "hooks": others}] if others else []


# Reading and shapes


class _WrongShape(Exception):
    """A part of the document is not what the client itself would take."""


def _object(parent: Document, key: str) -> Document:
    if not isinstance(parent.setdefault(key, {}), dict):
        raise _WrongShape(f"has a {key!r} that is no object")
    return parent[key]


def _list(parent: Document, key: str) -> list[Any]:
    found = parent.setdefault(key, [])
    if not isinstance(found, list):
        raise _WrongShape(f"has a {key!r} that is no list")
    return found


def _parse(file: Path, format: Format, text: str) -> Document:
    try:
        if format == "toml":
            return _toml(text)
        document = json.loads(text, object_pairs_hook=_distinct, parse_constant=refuse_constant) if text.strip() else {}
    except (ValueError, RecursionError):
        _refuse(file, f"is not well-formed {format.upper()} (comments, a stray comma?)")
    if not isinstance(document, dict):
        _refuse(file, "is no JSON object")
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
        raise ValueError("a key stands twice")  # one of the two would be lost
    return document


def _plain(document: Document) -> Any:
    return document.unwrap() if hasattr(document, "unwrap") else document


def _indent(text: str) -> str | int:
    """The indentation a JSON file has; two spaces where it has none."""
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found[1] if found else 2


def _refuse(file: Path, why: str) -> NoReturn:
    raise NexusError(Code.CONFIG_ERROR, f"{file} {why}. It was left as it is.", {"file": str(file)})
