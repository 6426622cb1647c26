"""Changes to a client's configuration file: the rest of it stays, the change is shown, a backup is kept."""

from __future__ import annotations

import contextlib
import errno
import stat
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from nexus.core import files, foreign_files
from nexus.core.coding_clients import CLIENTS, HOOKED, Format
from nexus.core.files import Change, own_user
from nexus.core.logs import redact
from nexus.core.operations.errors import Code, NexusError
from nexus.hooks import client_entries, config_text
from nexus.hooks.client_entries import SERVER
from nexus.hooks.config_text import FORMATS, ConfigText, JsonText, WrongShape
from nexus.hooks.signal_files import private_directory

Edit = Callable[[Any], None]  # of a ConfigText
# A file that stands alone in a mount, or in a directory that this user cannot write, is written in place.
IN_PLACE = (errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS)


def plan(file: Path, format: Format, edit: Edit) -> Change:
    """Return the change that `edit` makes to the document in `file`.

    Raises CONFIG_ERROR, which names the file, if it cannot be read or has another format. Writes nothing.
    """
    return edited(file, format, read(file), edit)


def edited(file: Path, format: Format, before: str | None, edit: Edit) -> Change:
    """Return the change that `edit` makes to a document with this text. Raises CONFIG_ERROR as `plan` does."""
    document = parse(file, format, before or "")
    try:
        edit(document)
        document.text.encode()
    except WrongShape as problem:
        refuse(file, str(problem))
    except (ValueError, RecursionError):
        refuse(file, "holds something that would not survive a change")
    return Change(file, before, before if document.text == (before or "") else document.text)


def parse(file: Path, format: Format, text: str) -> ConfigText:
    """Return the document in a file's text. Raises CONFIG_ERROR if it has another format."""
    try:
        return FORMATS[format](text)
    except ValueError as error:
        refuse(file, f"is not well-formed {format.upper()}: {error}")


def read(file: Path) -> str | None:
    """Return a file's text, None if there is no file. Raises CONFIG_ERROR, also for a link: `client_entries.locate`
    followed those of the user."""
    with _refusing(file, "read"), contextlib.suppress(FileNotFoundError):
        content = foreign_files.read_file(str(file))
        if b"\0" in content:
            refuse(file, "is in UTF-16, or is no text: save it as UTF-8, and run this again")
        return content.decode("utf-8")
    return None


def find(client: str, root: Path, scope: str) -> Path:
    """Return the client's file of servers in a scope, `user` or `project`: if there are several, the one with Nexus's
    entry, else the first that exists. A client with only one file has it in either scope."""
    known = CLIENTS[client]
    usual = known.project_file if scope == "project" and known.project_file else known.user_file
    assert usual is not None, "every client that can be found has a file"
    others = [path for path in known.other_files if path.startswith("~") == usual.startswith("~")]
    found = []
    for file in [client_entries.locate(path, root) for path in (usual, *others)] if others else ():
        with contextlib.suppress(NexusError):  # whoever uses the file says what is wrong with it
            if (text := read(file)) is not None:
                found.append(file)
                if parse(file, known.format, text).get(server_path(client)) is not None:
                    return file
    return found[0] if found else client_entries.locate(usual, root)


def apply(change: Change, backups: Path) -> Path | None:
    """Write a change as `write` does; return the path of the backup in this directory, None for a new file."""
    file, backup = change.file, None
    if change.before is not None:
        _check_unchanged(change)
        with _refusing(file):
            private_directory(backups)
            backup = backups.resolve() / f"{file.name}.{datetime.now():%Y%m%d-%H%M%S-%f}.backup"
            foreign_files.replace(str(backup), change.before.encode(), mode=files.PRIVATE)
    write(change)
    return backup


def write(change: Change, *, new_mode: int = files.PRIVATE) -> None:
    """Write a change; delete the file if nothing is left of it.

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
        _store(str(file), change.after.encode(), mode)


def _store(file: str, content: bytes, mode: int) -> None:
    """Replace a file in one step where that keeps its owner, its mount and its other names; otherwise write it in
    place."""
    known = foreign_files.status(file)
    if known is None or (known.st_nlink == 1 and own_user() in (known.st_uid, None)):
        try:
            foreign_files.replace(file, content, mode=mode, may_make=lambda _: True)
            return
        except OSError as error:
            if known is None or error.errno not in IN_PLACE:
                raise
    foreign_files.rewrite(file, content, mode=mode)


def _check_unchanged(change: Change) -> None:
    if read(change.file) != change.before:
        refuse(change.file, "was changed by somebody else meanwhile; run this again")


@contextlib.contextmanager
def _refusing(file: Path, done: str = "written") -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError:
        refuse(file, "is no UTF-8 text: save it as UTF-8, and run this again")
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            refuse(file, "is a link, or is behind one: none of a project is followed, nor one to another user's file")
        refuse(file, f"cannot be {done} ({error.strerror or type(error).__name__})")


def _mode(file: Path, text: str) -> int:
    """Return the mode of `file`, without others' rights if `text` contains a key."""
    mode = stat.S_IMODE(file.lstat().st_mode)
    return mode & 0o700 if redact(text) != text else mode


# Edits


def server_path(client: str) -> config_text.Path:
    """Return where Nexus's entry among the client's MCP servers is."""
    return (CLIENTS[client].servers, SERVER)


def put_server(client: str, entry: Mapping[str, Any]) -> Edit:
    """Return an edit that sets Nexus's entry among the client's MCP servers. Fields that are not ours stay in it."""
    where = server_path(client)

    def edit(document: ConfigText) -> None:
        known = document.get(where)
        if not isinstance(known, dict):
            document.put(where, entry)
            return
        for name, value in entry.items():
            if isinstance(value, list) and name == CLIENTS[client].passed and isinstance(known.get(name), list):
                value = [*known[name], *(each for each in value if each not in known[name])]  # a person added some
            fields = value.items() if isinstance(value, Mapping) and isinstance(known.get(name), dict) else ()
            for path, each in [((*where, name, key), each) for key, each in fields] or [((*where, name), value)]:
                document.put(path, each)
        for field in client_entries.stale_fields(client, entry):
            document.remove((*where, *field))

    return edit


def drop_server(client: str, before: ConfigText | None = None) -> Edit:
    """Return an edit that removes Nexus's entry, and the object around it if it holds nothing else and was not in the
    text `before`."""

    def edit(document: ConfigText) -> None:
        document.remove(server_path(client), before)

    return edit


def put_hooks(client: str, command: str) -> Edit:
    """Return an edit that sets Nexus's hooks. Existing ones keep their place, their time limit and others' fields."""
    wanted = client_entries.hook_entries(client, command)

    def edit(document: JsonText) -> None:
        if client == "cursor" and document.get(("version",)) is None:
            document.put(("version",), 1)
        for event in client_entries.hook_points(client):
            _put_handler(document, client, event, wanted.get(event))
        for event in waking.events if (waking := HOOKED[client].waking) else ():
            _put_handler(document, client, event, client_entries.waking_entry(client, command), waits=True)

    return edit


def drop_hooks(client: str, before: ConfigText | None = None) -> Edit:
    """Return an edit that removes Nexus's hooks, and the objects and lists that held nothing else and were not in the
    text `before`."""

    def edit(document: JsonText) -> None:
        for event in client_entries.hook_points(client):
            _drop_handlers(document, client, event, before=before, waits=True)
            _drop_handlers(document, client, event, before=before)
        if client == "cursor" and before is not None and before.get(("version",)) is None and not document.get(HOOKS):
            document.remove(("version",), before)

    return edit


def installed(document: ConfigText, client: str) -> str | None:
    """Return the command line of Nexus's hooks in a document; None if there are none."""
    hooks = document.get(HOOKS)
    for event in hooks if isinstance(hooks, dict) else ():
        for handler in _handlers(document, client, event):
            return str(document.get((*handler, "command")))
    return None


HOOKS: config_text.Path = ("hooks",)


def _put_handler(
    document: JsonText, client: str, event: str, group: Mapping[str, Any] | None, *, waits: bool = False
) -> None:
    """Have one hook of Nexus for an event, or none."""
    _drop_handlers(document, client, event, keep=1 if group else 0, waits=waits)
    found = _handlers(document, client, event, waits=waits)
    if group and not (found and _update(document, found[0], group, waits=waits)):
        _drop_handlers(document, client, event, waits=waits)
        document.append((*HOOKS, event), group)


def _handlers(document: ConfigText, client: str, event: str, *, waits: bool = False) -> list[config_text.Path]:
    """Return the paths of Nexus's hooks for an event: of items of the event's list, or of such an item's own list."""
    found: list[config_text.Path] = []
    groups = document.get((*HOOKS, event))
    for number, group in enumerate(groups if isinstance(groups, list) else ()):
        inner = group.get("hooks") if isinstance(group, dict) else None
        places: list[tuple[config_text.Path, Any]] = [((number,), group)]
        places += [((number, "hooks", each), one) for each, one in enumerate(inner if isinstance(inner, list) else ())]
        for place, handler in places:
            if isinstance(handler, dict) and client_entries.is_ours(handler.get("command"), client, waits=waits):
                found.append((*HOOKS, event, *place))
    return found


def _drop_handlers(
    document: ConfigText,
    client: str,
    event: str,
    *,
    keep: int = 0,
    before: ConfigText | None = None,
    waits: bool = False,
) -> None:
    """Remove Nexus's hooks for an event but for the first `keep`, each with its group if that holds no other."""
    for path in reversed(_handlers(document, client, event, waits=waits)[keep:]):
        group = path[:3]
        is_alone = len(path) > len(group) and len(document.get(path[:-1])) == 1
        document.remove(group if is_alone else path, before)


def _update(document: ConfigText, path: config_text.Path, wanted: Mapping[str, Any], *, waits: bool) -> bool:
    """Bring one of Nexus's hooks up to date in its place; return whether it may stay there. It keeps a person's own
    time limit, but for the hook that waits: that one would end with it, and wake nobody."""
    group = path[:3]
    handler = wanted["hooks"][0] if "hooks" in wanted else wanted
    matcher, known = wanted.get("matcher"), document.get((*group, "matcher"))
    is_shared = len(path) > len(group) and len(document.get(path[:-1])) > 1
    if (len(path) > len(group)) != ("hooks" in wanted) or (is_shared and known != matcher):
        return False
    for name, value in handler.items():
        if waits or name != "timeout" or document.get((*path, name)) is None:
            document.put((*path, name), value)
    if matcher is not None:
        document.put((*group, "matcher"), matcher)
    elif known not in (None, "", "*"):
        document.remove((*group, "matcher"))
    return True


def refuse(file: Path, why: str) -> NoReturn:
    """Raise CONFIG_ERROR: say that a file stays as it is, and why."""
    raise NexusError(Code.CONFIG_ERROR, f"{file} {why}. It was left as it is.", {"file": str(file)})
