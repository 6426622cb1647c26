"""From a command line to a configured Django: the `nexus` command and `manage.py` both start here."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import sys
from collections import deque
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from nexus.core import surroundings
from nexus.core.config import TABLE, Resolved, flag, parse, resolve, retired
from nexus.core.operations.errors import Code, NexusError
from nexus_site import ending

# Add an app here, in one line. Earlier apps do not import later ones.
APPS = [
    "nexus.core",
    "coordination",
    "inbox",
    "handoffs",
    "nexus.hooks",
    "nexus.topics",
    "nexus.planning",
    "nexus.reservations",
    "nexus.control",
    "nexus.forges",
    "mcp_bridge",
    "nexus.maintenance",
    "nexus.compat",
    "nexus_site",
]
INTERRUPTED, TERMINATED = 130, 143  # exit codes: ended by SIGINT or SIGTERM, as in shells
ENDS: dict[str, tuple[BaseException, BaseException]] = {  # at SIGINT and at SIGTERM
    "serve": (SystemExit(0), SystemExit(0)),
    "demo": (KeyboardInterrupt(), SystemExit(TERMINATED)),
}
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EIO)  # errors of a stream that leads to a file
WHOLE = {"serve", "demo", "operators", "migrate_store"}  # our commands that need pages, or the accounts of operators

LOGGING = {
    "version": 1,
    "filters": {"redaction": {"()": "nexus.core.logs.Redaction"}},
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["redaction"]}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {  # a client's mistakes are in its answers; the log must not grow with them
        "django.request": {"level": "ERROR"},
        "django.security": {"level": "CRITICAL"},
        "mcp.shared.jsonrpc_dispatcher": {"level": "ERROR"},  # reports clients that did not read the last message
    },
}

_flags: dict[str, str] = {}


def take_flags(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Split a command's arguments into the settings' flags (by setting name) and the rest.

    Accepts `--flag value` and `--flag=value`, and for some flags no value. Raises CONFIG_ERROR for any other flag
    without a value.
    """
    names = {flag(name): name for name in declared()}
    flags: dict[str, str] = {}
    rest: list[str] = []
    pending = deque(arguments)
    while pending:
        argument = pending.popleft()
        head, equals, value = argument.partition("=")
        if head not in names:
            rest.append(argument)
            continue
        if not equals and not _is_value(names[head], pending):
            value = declared()[names[head]].bare
        elif not equals:
            value = pending.popleft() if pending else "--"
            if value.startswith("--"):
                raise NexusError(Code.CONFIG_ERROR, f"{head} needs a value.", {"setting": names[head]})
        flags[names[head]] = value
    return flags, rest


def _is_value(name: str, pending: Sequence[str]) -> bool:
    """Return whether the argument after a setting's flag is its value; it always is where the flag needs one."""
    if declared()[name].bare is None:
        return True
    try:
        parse(name, pending[0] if pending else "", name)
    except NexusError:
        return False
    return True


@cache
def declared() -> dict[str, Any]:
    """Return every setting, after each app has declared its own."""
    for app in APPS:
        if find_spec(f"{app}.config"):
            import_module(f"{app}.config")
    return TABLE


@cache
def resolved() -> Resolved:
    """Return the settings of this process, from the flags that `main` took and the environment."""
    declared()
    return resolve(os.environ, _flags)


def configure(arguments: list[str]) -> tuple[Any, list[str]]:
    """Return the settings with the flags applied, and the other arguments. Raises CONFIG_ERROR when a flag is
    invalid."""
    flags, rest = take_flags(arguments)
    _flags.update(flags)
    return resolved().settings, rest


@cache
def is_lean(command: str) -> bool:
    """Return whether the small settings are enough for a command: for those of the apps above, except WHOLE. Django's
    own need all."""
    folders = (folder for app in APPS if (spec := find_spec(app)) for folder in spec.submodule_search_locations or ())
    return command not in WHOLE and any(
        os.path.isfile(os.path.join(folder, "management", "commands", f"{command}.py"))  # noqa: PTH113
        for folder in folders
    )


def choose_settings(command: str) -> None:
    """Set the Django settings module that `command` needs."""
    settings = "nexus_site.settings_agent" if is_lean(command) else "nexus_site.settings"
    os.environ["DJANGO_SETTINGS_MODULE"] = settings  # whatever another Django project has there


def main(argv: list[str] | None = None) -> None:
    """Run one command. Exit code 1 with `CONFIG_ERROR` on stderr when the configuration is invalid, 130 at Ctrl-C."""
    if sys.flags.optimize > 1 and os.environ.pop("PYTHONOPTIMIZE", ""):  # it drops docstrings, which agents read
        from nexus.core import processes

        processes.start_again()
    surroundings.settle()
    words = list(sys.argv if argv is None else argv)
    if words[1:2] and words[1] in ENDS:
        ending.end_at_signals(*ENDS[words[1]])
    try:
        try:
            _main(words)
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        ending.ignore_interrupts()
        with contextlib.suppress(OSError):
            sys.stderr.write("\n[nexus] Interrupted.\n")
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has closed the pipe, such as `| head`
        _stop_writing()
        sys.exit(1)
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        _stop_writing()
        sys.exit(f"[nexus] The output could not be written: {error.strerror}.")


def _stop_writing() -> None:
    """Discard what is still buffered for a stream that takes nothing more: Python writes it at exit, and would report
    an error."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(null, stream.fileno())


def _main(argv: list[str]) -> None:
    command, arguments = argv[1] if len(argv) > 1 else "--help", argv[2:]
    if command == "help" and arguments[:1]:
        command, arguments = arguments[0], ["--help"]
    command = command if command.startswith("-") else command.replace("-", "_")  # the name of the command's module
    if command in ("hook", "wait") and _hooked(command, arguments):
        return
    if command == "attach" and "--" in arguments:
        from nexus.hooks import attaching

        attaching.main(configure, arguments)
    try:
        _, rest = configure(arguments)
    except NexusError as error:
        sys.exit(f"[nexus] {error.code}: {error.message}")
    for sentence in retired(os.environ):
        print(f"[nexus] {sentence}", file=sys.stderr)
    if command == "runmcp" and not rest:
        from mcp_bridge.relay import relay

        relay(resolved(), APPS)
    choose_settings(command)
    if command == "runmcp":
        gc.disable()  # until it serves: imported objects stay, and a collection among them finds nothing

    import django

    lean = is_lean(command)
    if lean:
        _populate()
    else:
        django.setup()
    from django.core.management import execute_from_command_line, get_commands, load_command_class

    commands = get_commands()
    if command in OVERVIEW or command not in commands:
        sys.exit(_about(command))
    if lean:
        load_command_class(commands[command], command).run_from_argv([argv[0], command, *rest])
    elif command in WHOLE:
        execute_from_command_line([argv[0], command, *rest])
    else:
        _run_djangos_own([argv[0], command, *rest])


def _run_djangos_own(words: list[str]) -> None:
    """Run one of Django's commands, such as `migrate`, as if it were ours: a store that it makes is its owner's alone,
    and an error of the database is one line."""
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError

    from nexus.core.database.store import store

    os.umask(0o077)
    if words[1] == "migrate":
        home = resolved().settings.home
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            sys.exit(f"[nexus] {Code.DB_ERROR}: Cannot create {home}: {error.strerror}. Choose another --home.")
    try:
        execute_from_command_line(words)
    except DatabaseError as error:
        known = store().failure(error)
        if known is None:
            raise
        sys.exit(f"[nexus] {known.code}: {known.message}")


def _populate() -> None:
    """Start Django for an agent, without URLs, HTTP and mail, which its own `setup` also imports."""
    from django.apps import apps
    from django.conf import settings

    apps.populate(settings.INSTALLED_APPS)


OVERVIEW = ("help", "version", "-h", "--help", "--version")


def _about(command: str) -> str | None:
    """Return the help of all commands, or the message for one that does not exist."""
    from nexus.core import command_list

    if command in OVERVIEW:
        print(command_list.version() if "version" in command else command_list.overview())
        return None
    head = command.partition("=")[0]
    if head in map(flag, declared()):
        return f"[nexus] {Code.CONFIG_ERROR}: {head} comes after the command: nexus status {head} …"
    return command_list.unknown(command.replace("_", "-"))


def _hooked(command: str, arguments: list[str]) -> bool:
    """Answer a client's call of `nexus hook`, or `nexus wait`, by the hub where there is one; return False for a
    person's call of the former, and for help."""
    from nexus.hooks import entry, harness

    if not entry.is_call(arguments):
        return False
    gc.disable()  # it ends before there is garbage worth a collection

    def start_django() -> None:
        import logging

        choose_settings("hook")
        _populate()
        logging.disable()  # a failure is one line on stderr, which `entry` writes

    def ask(name: str, call: Any, **arguments: Any) -> Any:
        from mcp_bridge import relay, remote

        try:
            return remote.ask_hook(resolved(), APPS, name, call, arguments)
        except relay.NoHub:
            start_django()
        from nexus.hooks import store_queries

        return store_queries.answer(name, call, **arguments)

    for module in (f"{app}.hook" for app in APPS):
        if find_spec(module):
            import_module(module)
    _flags["busy_timeout_ms"] = entry.BUSY_TIMEOUT_MS
    if command == "wait" or harness.WAIT in arguments:
        from nexus.hooks import waking

        waking.main(lambda: configure(arguments), ask, hooked=command == "hook")
    entry.main(lambda: configure(arguments), ask)
    if "django" not in sys.modules:
        os._exit(0)  # Python's orderly exit would take a tenth of the call's time, and nothing is open
    return True
