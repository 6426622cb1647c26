"""The hub without a terminal: started now, or at each login by systemd or launchd. `nexus setup` uses it."""

from __future__ import annotations

import contextlib
import os
import plistlib
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from nexus.core.instance import Holder, login_code, running
from nexus.core.operations.errors import Code, NexusError
from nexus.core.processes import CHUNK, NEUTRAL, environment, own_environment, run, start_detached
from nexus.hooks.client_commands import program

UNIT, LABEL = "nexus.service", "nexus.hub"
LOG = "serve.log"  # in the home
START_SECONDS = 120.0
STOP_SECONDS = 20.0
ANSWER_SECONDS = 10.0
MANAGER_SECONDS = 30
PAUSE = 0.1  # seconds between two checks


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command that serves with these arguments."""
    return [*program(), "serve", *arguments]


def restart(home: Path, arguments: Sequence[str], manager: str) -> Holder:
    """End the hub of a home, if one runs, and start it with these arguments: by the unit of this service manager, if
    one is named. Raises CONFIG_ERROR."""
    stop(home)
    return enable(manager, home) if manager else start(command(arguments), home)


def start(command: Sequence[str], home: Path) -> Holder:
    """Start the hub and wait until it answers. Raises CONFIG_ERROR, with no process left, where it does not."""
    log = home / LOG
    with log.open("ab") as written:
        log.chmod(0o600)
        begin = written.tell()
        try:
            process = start_detached(command, cwd=NEUTRAL, env=own_environment(), log=written)
        except OSError as error:
            raise _failed(f"it cannot be started ({type(error).__name__})", log) from None
    try:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with log.open("rb") as reading:
                reading.seek(begin)
                said = reading.read(CHUNK)
            if b"[nexus] Ready" in said and (holder := running(home)):
                return holder
            if process.poll() is not None:
                last = said.decode(errors="replace").strip().splitlines()[-1:] or ["it ended at once"]
                raise _failed(last[0].removeprefix("[nexus] ").removeprefix(f"{Code.CONFIG_ERROR}: "), log)
            time.sleep(PAUSE)
        raise _failed(f"it did not answer within {START_SECONDS:g} seconds", log)
    except BaseException:
        process.kill()
        process.wait()
        raise


def _failed(why: str, log: Path) -> NexusError:
    return NexusError(Code.CONFIG_ERROR, f"The hub did not start: {why.rstrip('.')}. Its log is {log}.")


def stop(home: Path) -> bool:
    """End the hub of a home; return whether there was one. Raises CONFIG_ERROR where it does not end."""
    holder = running(home)
    if holder is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(holder.pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while running(home):
        if time.monotonic() > deadline:
            raise NexusError(Code.CONFIG_ERROR, f"The hub (process {holder.pid}) does not end.")
        time.sleep(PAUSE)
    return True


def pages(home: Path, holder: Holder) -> str:
    """Return the address of the hub's pages for its operator; where they want a login, one that logs in, once."""
    asking = HTTPConnection(holder.address, holder.port, timeout=ANSWER_SECONDS)
    with contextlib.suppress(OSError, HTTPException), contextlib.closing(asking):
        asking.request("GET", "/admin/")
        if asking.getresponse().status == HTTPStatus.FOUND:
            return f"{holder.url}/login/{login_code(home)}"
    return f"{holder.url}/admin/"


# At login


def unit() -> tuple[Path, str]:
    """Return the unit file for this system's service manager, and the manager's name. Raises CONFIG_ERROR where there
    is none."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist", "launchd"
    if shutil.which("systemctl"):
        configuration = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
        return configuration / "systemd" / "user" / UNIT, "systemd"
    raise NexusError(
        Code.CONFIG_ERROR,
        "Neither systemd nor launchd is here to start the hub at login. Leave --at-login out, and have your system run "
        "`nexus serve`.",
    )


def unit_text(manager: str, command: Sequence[str], home: Path) -> str:
    """Return the content of the unit file, which runs `command` at login."""
    if manager == "launchd":
        content = {
            "Label": LABEL,
            "ProgramArguments": list(command),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "StandardOutPath": str(home / LOG),
            "StandardErrorPath": str(home / LOG),
        }
        return plistlib.dumps(content).decode()
    words = " ".join(f'"{_quoted(word)}"' for word in command)
    return (
        "[Unit]\nDescription=Nexus, the hub of coding agents\n\n"
        f"[Service]\nExecStart={words}\nRestart=on-failure\n\n"
        "[Install]\nWantedBy=default.target\n"
    )


def _quoted(word: str) -> str:
    """Return a word between quotes for a unit file, with % and $ escaped."""
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")


def enable(manager: str, home: Path) -> Holder:
    """Start the hub by its unit, now and at each login. On failure, disable it again and raise CONFIG_ERROR."""
    try:
        if manager == "launchd":
            with contextlib.suppress(NexusError):  # it is not loaded
                disable(manager)
            _call("launchctl", "bootstrap", f"gui/{os.getuid()}", str(unit()[0]))
        else:
            _call("systemctl", "--user", "daemon-reload")
            _call("systemctl", "--user", "enable", "--now", UNIT)
        deadline = time.monotonic() + START_SECONDS
        while not (holder := running(home)):
            if time.monotonic() > deadline:
                raise _failed(f"{manager} started it, and it does not answer", home / LOG)
            time.sleep(PAUSE)
        return holder
    except BaseException:
        with contextlib.suppress(NexusError):
            disable(manager)
        raise


def disable(manager: str) -> None:
    """End the hub of a unit, and do not start it at login. Raises CONFIG_ERROR."""
    if manager == "launchd":
        _call("launchctl", "bootout", f"gui/{os.getuid()}/{LABEL}")
    else:
        _call("systemctl", "--user", "disable", "--now", UNIT)


def _call(*command: str) -> None:
    """Run a program of the service manager. Raises CONFIG_ERROR with its output."""
    variables = ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DBUS_SESSION_BUS_ADDRESS")
    try:
        done = run(command, cwd=NEUTRAL, env=environment(*variables), seconds=MANAGER_SECONDS, largest=CHUNK)
        said = done.errors.decode(errors="replace").strip() if done.code else None
    except OSError as error:
        said = type(error).__name__
    if said is not None:
        raise NexusError(Code.CONFIG_ERROR, f"`{shlex.join(command)}` failed: {said or 'it does not say why'}.")
