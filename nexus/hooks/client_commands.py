"""Shared parts of `nexus hook install` and `nexus connect`: options, the command that they write, the confirmation, and
whether git would track a file that holds a key.
"""

from __future__ import annotations

import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from django.conf import settings

from coordination.paths import resolve_root
from nexus.core.cli import NexusCommand
from nexus.core.config import CoreSettings, flag, without_password
from nexus.core.files import Change
from nexus.core.installation import DISTRIBUTION, UVX, requirement
from nexus.core.logs import redact
from nexus.core.processes import CHUNK, operators_git, python, run
from nexus.hooks import client_files
from nexus.hooks.client_entries import SERVER, STORE_SETTINGS

BACKUPS = "client-backups"  # in the home; beside a file in a repository a backup would be committed
EDITS = "guard_edits"  # and that of reservations
MOST_HEAD = 4_096  # bytes of a script that are read
TOOLSETS = "toolsets"  # the toolsets of the client's connections: a setting, and a parameter of the URL


def add_setup_options(parser: ArgumentParser) -> None:
    """Add the options that say where to write, and whether to ask."""
    parser.add_argument(
        "--scope",
        choices=("project", "user"),
        default="project",
        help="write the file of the project or of the user; default: project",
    )
    parser.add_argument("--yes", action="store_true", help="write without asking")


def program() -> list[str]:
    """Return the command that starts this very `nexus` from anywhere."""
    started = Path(sys.argv[0]).absolute()
    if UVX in started.parts and (uvx := shutil.which("uvx")):  # uv may empty its cache at any time
        return [uvx, "--from", *requirement(), "nexus"]
    if started.name == DISTRIBUTION:  # clients' files know the program by its other name
        started = started.with_name("nexus")
    if started.name == "__main__.py":  # by `python -m nexus`
        started = Path(sys.executable).with_name("nexus")
        if not started.is_file():
            return python("nexus")
    if started.suffix == ".py":
        return [sys.executable, str(started)]
    # Not by its script: where that is gone, Python ends with 2, at which Claude Code goes on, or begins a turn.
    return python("nexus", alone=True) if _is_pythons(started) else [str(started)]


def shared_program() -> list[str]:
    """Return the command for a file that colleagues have, too: `nexus` itself where an installer linked this one into a
    directory on the PATH, as `uv tool` and `pipx` do; otherwise, and for a store of this machine's choice, that of
    `program`."""
    found = Path(shutil.which(SERVER) or "")
    is_linked = found.is_symlink() and found.resolve() == Path(sys.argv[0]).resolve()
    return [SERVER] if is_linked and not settings_flags() else program()


def _is_pythons(script: Path) -> bool:
    """Return whether a program is a script that an installer made for Python."""
    try:
        first, second, *_ = script.read_bytes()[:MOST_HEAD].split(b"\n")
    except (OSError, ValueError):
        return False
    return first.startswith(b"#!") and (b"python" in first or second.startswith(b"'''exec'"))


def settings_flags(*more: str) -> list[str]:
    """Return the flags that name this command's store, and the other settings in `more`; none for defaults.

    No flag holds a password, because every user of the machine can read a command line.
    """
    chosen = [name for name in (*STORE_SETTINGS, *more) if settings.NEXUS_SOURCES[name] != "default"]
    values = {name: str(getattr(settings.NEXUS, name)) for name in chosen}
    if "database_url" in values:
        values["database_url"] = without_password(values["database_url"])
    return [word for name, value in values.items() for word in (flag(name), value)]


def remind_of_password(command: NexusCommand) -> None:
    """Say where a client's processes get the database's password from, if it was left out."""
    url = CoreSettings.current().database_url
    if url is not None and url.partition(":")[2] != without_password(url).partition(":")[2]:
        command.stderr.write(
            "The database's password was not written. Keep it in ~/.pgpass (host:port:database:user:password, mode "
            "0600), or start the client with PGPASSWORD set."
        )


def with_toolsets(url: str) -> str:
    """Return an /mcp URL with the toolsets of this command's options; unchanged if there are none."""
    if settings.NEXUS_SOURCES[TOOLSETS] == "default":
        return url
    parts = urlsplit(url)
    others = [(name, value) for name, value in parse_qsl(parts.query) if name != TOOLSETS]
    query = urlencode([*others, (TOOLSETS, str(getattr(settings.NEXUS, TOOLSETS)))], safe=",")
    return urlunsplit(parts._replace(query=query))


def project(options: Mapping[str, Any]) -> Path:
    """Return the project that --project names. Raises WORKSPACE_UNRESOLVED."""
    return Path(resolve_root(options["project_root"] or str(Path.cwd())))


def carry_out(command: NexusCommand, change: Change, *, yes: bool) -> None:
    """Show a change, ask, write it. Raises CONFIG_ERROR if nobody can be asked."""
    if not change.diff:
        command.stdout.write(f"{change.file} needs no change.")
        return
    command.stdout.write(redact(change.diff))
    if not yes and not command.ask(f"Write this to {change.file}?"):
        command.stdout.write("Nothing was written.")
        return
    backup = write(change)
    command.stdout.write(f"Wrote {change.file}." + (f" The backup is {backup}." if backup else ""))


def write(change: Change) -> Path | None:
    """Write a change; return the backup's path, None for a new file. Raises CONFIG_ERROR."""
    return client_files.apply(change, CoreSettings.current().home / BACKUPS)


TIME_LIMIT_SECONDS = 10


def would_track(file: Path) -> bool:
    """Return whether git tracks `file`, or would after the next `git add`: it is in a repository that does not ignore
    it.

    If git cannot be asked, the answer is yes, because a key is at stake.
    """
    if not any((directory / ".git").exists() for directory in file.parents):
        return False
    directory = next(parent for parent in file.parents if parent.is_dir())
    command = ["git", "check-ignore", "--quiet", "--", str(file)]
    try:
        ignored = run(command, cwd=str(directory), env=operators_git(), seconds=TIME_LIMIT_SECONDS, largest=CHUNK)
    except OSError:  # includes TimeoutError
        return True
    return ignored.code != 0  # a tracked file is not ignored, whatever the patterns say
