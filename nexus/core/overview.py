"""`nexus --help` and `nexus --version`: what there is, and what to type when a command is not known."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict

from django.core.management import get_commands, load_command_class

from nexus.core.apps import nexus_apps
from nexus.core.cli import Group, NexusCommand
from nexus.core.operations.errors import Code
from nexus.core.version import package_version

WIDTH = 15  # columns of a command's name


def names() -> dict[str, str]:
    """The commands of Nexus as people type them, each with the name of its app."""
    own = {config.name for config in nexus_apps()}
    return {name.replace("_", "-"): app for name, app in sorted(get_commands().items()) if app in own}


def commands() -> dict[str, NexusCommand]:
    """The commands of Nexus by the name people type."""
    found = {name: load_command_class(app, name.replace("-", "_")) for name, app in names().items()}
    return {name: command for name, command in found.items() if isinstance(command, NexusCommand)}


def overview() -> str:
    """Every command in its group, with a line each."""
    groups: dict[Group, list[str]] = defaultdict(list)
    for name, command in commands().items():
        groups[command.group].append(f"  {name:<{WIDTH}}{summary(command.help)}")
    lists = ("\n".join([group, *groups[group]]) for group in Group if group in groups)
    return "\n\n".join(
        [
            "usage: nexus COMMAND [options] [settings]",
            "Nexus is where a team of coding agents coordinates.",
            *lists,
            "`nexus COMMAND --help` has a command's examples and options, and the settings that every command takes.",
        ]
    )


def summary(help: str) -> str:
    """The first sentence of a command's help."""
    return re.split(r"(?<=\.)\s", " ".join(help.split()), maxsplit=1)[0]


def version() -> str:
    """The program and its version."""
    return f"nexus {package_version()}"


def unknown(name: str) -> str:
    """What to say of a command that is not there: the nearest one, or where they are listed."""
    near = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean `nexus {near[0]}`? " if near else ""
    return f"[nexus] {Code.CONFIG_ERROR}: There is no command {name[:200]!r}; {hint}`nexus --help` lists them."
