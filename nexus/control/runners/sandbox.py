"""The sandbox (bubblewrap) of programs that a turn starts: they see the system's programs, the agent's directory, and
nothing else of the machine.

Mounts are ordered by depth, so that a directory below a hidden one can be visible again. docs/explanation/sandbox.md
says what limits a process in the sandbox, and what does not.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from nexus.control.config import ControlSettings
from nexus.control.permissions import protected_paths
from nexus.control.permissions.members import refused
from nexus.control.permissions.rules import Permissions, within
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners_file import Acp, Rehearsal, Runner
from nexus.core import foreign_files
from nexus.core.processes import CHUNK, NEUTRAL, environment, run

log = logging.getLogger(__name__)

PROGRAM = "bwrap"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store")
ETC = (  # what programs need to run; no account's secrets
    *("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "timezone", "locale.alias"),
    *("ssl", "ca-certificates", "ca-certificates.conf", "pki", "resolv.conf", "hosts", "host.conf", "nsswitch.conf"),
    *("gai.conf", "protocols", "services", "passwd", "group", "mime.types", "gitconfig", "terminfo"),
)
PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each process has its own, in memory
MOST_PRIVATE = 1024**3  # bytes of each of them
ALONE = (
    *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--new-session", "--cap-drop", "ALL"),
)
DIES = "--die-with-parent"
MOST_PROCESSES = 4_096  # of one sandbox
INSIDE = Path(__file__).parent / "programs" / "sandbox_init.py"
TRIAL_SECONDS, RETRY_SECONDS = 10, 60
FOR_NOW = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)  # why no program starts for a while

ENFORCED = "enforced by bubblewrap: its process sees programs and its directory, writes in its write paths alone, "
NETWORKS = {True: "and has the network", False: "and has no network"}
ASKED = (
    "only asked, not enforced: {why}. The file accesses and commands that it asks Nexus for are checked; what its "
    "process does by itself is not, and it may do what the hub's own account may."
)
FILES = "for files enforced by Nexus, which opens them itself; for programs, which a trusted agent runs, "
NOTHING = "it opens no file and starts no program"


@dataclass(frozen=True)
class SandboxState:
    """Whether this machine has a sandbox; `why` says why not."""

    works: bool
    why: str = ""
    bounds_memory: bool = False  # whether temporary files are limited; old versions cannot


_state: SandboxState | None = None


def state() -> SandboxState:
    """Return whether bubblewrap works here. It is tried once, since the kernels of many containers forbid it.

    A trial that ran out of time, on a machine with too much to do, says nothing: programs start in the sandbox or not
    at all, and it is tried again.
    """
    return _state or _find_out()


def _find_out() -> SandboxState:
    global _state
    try:
        _state = _try()
    except OSError as error:  # includes TimeoutError
        _state = SandboxState(True)
        log.warning("bubblewrap did not say whether it works here (%s); it is tried again.", error)
        again = threading.Timer(RETRY_SECONDS, _find_out)
        again.daemon = True
        again.start()
    return _state


def _try() -> SandboxState:
    """Try bubblewrap. Raises OSError if that could not be done now."""
    program = shutil.which(PROGRAM)
    if program is None:
        return SandboxState(False, f"there is no bubblewrap ({PROGRAM}) on this machine")
    if not (helped := _tried([program, "--help"])).works:
        return helped
    trial = [program, *ALONE, DIES, "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]
    return replace(_tried(trial), bounds_memory=helped.bounds_memory)


def _tried(trial: list[str]) -> SandboxState:
    try:
        tried = run(trial, cwd=NEUTRAL, env=environment(), seconds=TRIAL_SECONDS, largest=CHUNK)
    except OSError as error:
        if isinstance(error, TimeoutError) or error.errno in FOR_NOW:
            raise
        return SandboxState(False, f"bubblewrap does not start here ({type(error).__name__})")
    if tried.code:
        said = tried.errors.decode(errors="replace").strip().splitlines()
        return SandboxState(False, f"bubblewrap is not allowed here ({said[0][:200] if said else tried.code})")
    return SandboxState(True, bounds_memory=b"--size " in tried.output)


def describe_limits(runner: Runner) -> str:
    """Return, for operators, what limits an agent with this runner besides Nexus's own checks."""
    if isinstance(runner, Rehearsal):
        return NOTHING
    bounds = f"{ENFORCED}{NETWORKS[runner.network]}" if state().works else ASKED.format(why=state().why)
    return bounds if isinstance(runner, Acp) else FILES + bounds


def check(runner: Runner) -> None:
    """Check that such a runner has a sandbox if the settings require one. Raises NOT_PERMITTED."""
    if isinstance(runner, Acp):
        check_programs(runner)


def check_programs(runner: Runner) -> None:
    """Check that there is a sandbox if the settings require one for every program. Raises NOT_PERMITTED."""
    if ControlSettings.current().pool_sandbox == "required" and not state().works:
        raise refused("sandbox", f"`pool_sandbox` is required, and {state().why}; runner {runner.name!r} needs one.")


def wrap(
    command: Sequence[str],
    permissions: Permissions,
    *,
    network: bool,
    cwd: str,
    reading: Sequence[str] = (),
    writing: Sequence[str] = (),
    links: Sequence[str] = (),
    fixed: Mapping[str, list[str]] | None = None,
) -> list[str]:
    """Return the command line that runs a command in the sandbox.

    The command reads below the agent's directory and writes in its write paths, except for the mounts `fixed`, by path.
    `reading` and `writing` are further paths that it needs; of `links` it reads what is no symlink itself. It starts in
    `cwd`. Raises RunnerFailed for a directory that was replaced since it was granted.
    """
    mounts = _system()
    for path in reading:
        mounts[path] = ["--ro-bind-try", path, path]
    granted = {permissions.cwd: "--ro-bind", **dict.fromkeys(permissions.write_paths, "--bind")}
    meant = {path: there for path in granted if (there := stat_of(path)) is not None}
    if permissions.cwd not in meant:
        raise RunnerFailed(f"the agent's directory, {permissions.cwd}, is not there any more")
    for path in meant:
        mounts[path] = [granted[path], path, path]
    for path in links:
        with suppress(RunnerFailed):
            there = stat_of(path)
            if there is not None and (stat.S_ISDIR(there.st_mode) or stat.S_ISREG(there.st_mode)):
                mounts[path], meant[path] = ["--ro-bind", path, path], there
    mounts = {**(fixed or {}), **mounts}
    home = protected_paths.home()
    mounts[home] = ["--tmpfs", home]  # it holds the store and all keys
    for path in writing:
        mounts[path] = ["--bind", path, path]
    return _line(command, mounts, meant, network=network, cwd=cwd, hiding=home)


def enclose(
    command: Sequence[str],
    *,
    cwd: str,
    reading: Sequence[str] = (),
    writing: Sequence[str] = (),
    files: Sequence[str] = (),
    network: bool = False,
    outlives: bool = False,
) -> list[str]:
    """Return the command line that runs a command with only the system's programs and these directories.

    `files` are the operator's own, readable if they exist; `outlives`: it works on when this process ends. Raises
    RunnerFailed for a directory that does not exist or that a symlink leads to.
    """
    mounts: dict[str, list[str]] = _system()
    meant: dict[str, os.stat_result] = {}
    for path in files:
        mounts[path] = ["--ro-bind-try", path, path]
    for path, how in {**dict.fromkeys(reading, "--ro-bind"), **dict.fromkeys(writing, "--bind")}.items():
        there = stat_of(path)
        if there is None:
            raise RunnerFailed(f"there is no directory {path}")
        meant[path] = there
        mounts[path] = [how, path, path]
    return _line(command, mounts, meant, network=network, cwd=cwd, outlives=outlives)


def _system() -> dict[str, list[str]]:
    """Return the mounts of every sandbox, by path: programs, private memory, devices."""
    mounts: dict[str, list[str]] = {}
    for path in SYSTEM:
        mounts[path] = ["--ro-bind-try", path, path]
    for name in ETC:
        mounts[f"/etc/{name}"] = ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    size = ["--size", str(MOST_PRIVATE)] if state().bounds_memory else []
    for path in PRIVATE:
        mounts[path] = [*size, "--tmpfs", path]
    for path in (*python(), *map(str, INSIDE.parent.glob("*.py"))):
        mounts[path] = ["--ro-bind-try", path, path]
    mounts["/proc"], mounts["/dev"] = ["--proc", "/proc"], ["--dev", "/dev"]
    mounts["/proc/sys"] = ["--ro-bind", "/proc/sys", "/proc/sys"]  # root can write to it without any capability
    return mounts


def _line(
    command: Sequence[str],
    mounts: Mapping[str, list[str]],
    meant: Mapping[str, os.stat_result],
    *,
    network: bool,
    cwd: str,
    hiding: str | None = None,
    outlives: bool = False,
) -> list[str]:
    ordered = sorted(mounts, key=lambda path: len(PurePath(path).parts))
    return [
        *(
            shutil.which(PROGRAM) or PROGRAM,
            *ALONE,
            *(() if outlives else (DIES,)),
            *(() if network else ("--unshare-net",)),
        ),
        *(word for path in ordered for word in mounts[path]),
        *(() if hiding is None else _hidden_store(ordered, hiding)),
        *("--remount-ro", "/dev"),  # it is in memory, too
        *("--chdir", cwd, "--", sys.executable, "-I", "-S", str(INSIDE), str(MOST_PROCESSES)),
        *(f"{there.st_dev}:{there.st_ino}:{path}" for path, there in meant.items()),
        *("--", *command),
    ]


def stat_of(path: str) -> os.stat_result | None:
    """Return the stat of a granted path; None if nothing is there. Raises RunnerFailed if a symlink leads there:
    somebody who may write above it has put that there since it was granted."""
    try:
        at = foreign_files.open_directory(path, flags=os.O_PATH | foreign_files.CLOSED)
        found = os.fstat(at)
        os.close(at)
    except FileNotFoundError:
        return None
    except OSError:  # a symlink, or a file, where a directory was
        found = None
    if found is None or stat.S_ISLNK(found.st_mode):
        raise RunnerFailed(f"{path} was replaced since this agent was created; nothing is started there")
    return found


def python() -> list[str]:
    """Return the directories of Python, which the bus needs."""
    return [path for path in (sys.prefix, sys.base_prefix) if not within(path, SYSTEM)]


def _hidden_store(mounted: Sequence[str], home: str) -> list[str]:
    """Return mounts that hide a database which lies outside the home and would be visible."""
    database, *beside = protected_paths.database()
    if within(database, (home,)) or not within(database, [path for path in mounted if path not in PRIVATE]):
        return []
    existing = [path for path in (database, *beside) if Path(path).exists()]
    return [word for path in existing for word in ("--ro-bind", os.devnull, path)]
