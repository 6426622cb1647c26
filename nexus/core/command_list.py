"""The list of commands: for `nexus --help`, and to suggest one for an unknown name."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict

from django.core.management import get_commands, load_command_class

from nexus.core.apps import nexus_apps
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import package_version
from nexus.core.operations.errors import Code

WIDTH = 15  # columns of a command's name


def names() -> dict[str, str]:
    """Return the commands of Nexus as people type them, each with the name of its app."""
    own = {config.name for config in nexus_apps()}
    return {name.replace("_", "-"): app for name, app in sorted(get_commands().items()) if app in own}


def commands() -> dict[str, NexusCommand]:
    """Return the commands of Nexus by the name that people type."""
    found = {name: load_command_class(app, name.replace("-", "_")) for name, app in names().items()}
    return {name: command for name, command in found.items() if isinstance(command, NexusCommand)}


def overview() -> str:
    """Return the list of commands by group, a line each."""
    groups: dict[CommandGroup, list[str]] = defaultdict(list)
    for name, command in commands().items():
        groups[command.group].append(f"  {name:<{WIDTH}}{summary(command.help)}")
    lists = ("\n".join([group, *groups[group]]) for group in CommandGroup if group in groups)
    return "\n\n".join(
        [
            "usage: nexus COMMAND [options] [settings]",
            "Nexus is where a team of coding agents coordinates.",
            *lists,
            "`nexus COMMAND --help` has examples and options, `--help-all` also the settings that every command takes.",
        ]
    )


def summary(help: str) -> str:
    """Return the first sentence of a command's help."""
    return re.split(r"(?<=\.)\s", " ".join(help.split()), maxsplit=1)[0]


def version() -> str:
    """Return the program's name and version."""
    return f"nexus {package_version()}"


def unknown(name: str) -> str:
    """Return the message for an unknown command: the nearest one, or where the commands are listed."""
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean `nexus {near[0]}`? " if near else ""
    return f"[nexus] {Code.CONFIG_ERROR}: There is no command {name[:200]!r}; {hint}`nexus --help` lists them."
