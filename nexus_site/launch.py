"""From a command line to a configured Django: the `nexus` command and `manage.py` both start here."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

from coordination.errors import Code, NexusError
from coordination.knobs import TABLE, Knobs, Resolved, flag, resolve

CORE_APPS = ["coordination", "inbox", "handoffs", "hooks", "mcp_bridge", "nexus_site"]
AGENT_COMMANDS = {"runmcp"}  # these get the small settings

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}

_flags: dict[str, str] = {}


def take_flags(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command's arguments into the settings' flags (by setting name) and the rest.

    Takes `--flag value` and `--flag=value`. Raises CONFIG_ERROR for a flag with no value.
    """
    names = {flag(name): name for name in TABLE}
    flags: dict[str, str] = {}
    rest: list[str] = []
    pending = iter(arguments)
    for argument in pending:
        head, equals, value = argument.partition("=")
        if head not in names:
            rest.append(argument)
            continue
        if not equals:
            value = next(pending, "--")
            if value.startswith("--"):
                raise NexusError(Code.CONFIG_ERROR, f"{head} needs a value.", {"setting": names[head]})
        flags[names[head]] = value
    return flags, rest


@cache
def resolved() -> Resolved:
    """The settings of this process, from the flags that `main` took and the environment."""
    return resolve(os.environ, _flags)


def database(knobs: Knobs) -> dict[str, Any]:
    """The DATABASES entry: WAL, foreign keys, busy timeout; writes begin IMMEDIATE (contract: Storage)."""
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": knobs.database,
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "timeout": knobs.busy_timeout_ms / 1000,
            "transaction_mode": "IMMEDIATE",
            "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={knobs.durability};",
        },
    }


def main(argv: list[str] | None = None) -> None:
    """Run one command. Exit code 1 with `CONFIG_ERROR` on stderr when the configuration is invalid."""
    argv = list(sys.argv if argv is None else argv)
    try:
        flags, rest = take_flags(argv[2:])
        _flags.update(flags)
        resolved()
    except NexusError as error:
        sys.exit(f"[nexus] {error.code}: {error.message}")
    command = argv[1] if len(argv) > 1 else "help"
    settings = "nexus_site.settings_agent" if command in AGENT_COMMANDS else "nexus_site.settings"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)

    from django.core.management import execute_from_command_line

    execute_from_command_line([argv[0], command, *rest])
