"""The sandbox: its command line, and what a process tries in it past the protocol."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from nexus.control.models import PoolAgent
from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.runners import processes, sandbox
from nexus.control.runners.acp_client import Terminals
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.programs import sandbox_init
from nexus.control.runners_file import REHEARSAL, Acp
from nexus.control.worker.supervision import admit
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError
from nexus.core.processes import LIFELINE
from tests.acceptance.pool import arguments, until

ROOT = Path(__file__).resolve().parents[2]
RUNNER = Acp(kind="acp", name="agent", command=["agent"])


@pytest.fixture
def works(runs_sandbox: None) -> None:
    """A sandbox is tried."""
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")


def _pairs(line: Sequence[str]) -> dict[str, str]:
    """What a command line puts where, by the place."""
    with_source = ("--ro-bind", "--ro-bind-try", "--bind", "--bind-try")
    placed = {line[at + 2]: word for at, word in enumerate(line) if word in with_source}
    return placed | {line[at + 1]: word for at, word in enumerate(line) if word == "--tmpfs"}


def _wrapped(tmp_path: Path, *command: str, network: bool = False, home: str = "") -> list[str]:
    """A command line for an agent that works in `place` and writes in `place/out`."""
    place = tmp_path / "place"
    (place / "out").mkdir(parents=True, exist_ok=True)
    permissions = Permissions(Preset.SANDBOXED, str(place), (str(place / "out"),))
    writing = [home] if home else []
    return sandbox.wrap(command, permissions, network=network, cwd=str(place), writing=writing)


def test_it_shows_the_directory_to_read_and_the_write_paths_to_write(tmp_path: Path) -> None:
    line = _wrapped(tmp_path, "agent", "--flag")
    placed = _pairs(line)
    assert placed[f"{tmp_path}/place"] == "--ro-bind"
    assert placed[f"{tmp_path}/place/out"] == "--bind"
    assert {path for path, how in placed.items() if how.startswith("--bind")} == {f"{tmp_path}/place/out"}
    assert (placed["/usr"], placed["/tmp"]) == ("--ro-bind-try", "--tmpfs")
    assert not {"/", "/etc", "/root", "/home", "/var", "/run"} & placed.keys()
    assert line[-3:] == ["--", "agent", "--flag"]
    assert {"--die-with-parent", "--new-session", "--unshare-pid", "--unshare-user"} <= set(line)


def test_it_has_a_network_only_where_the_runner_names_it(tmp_path: Path) -> None:
    assert "--unshare-net" in _wrapped(tmp_path, "agent")
    assert "--unshare-net" not in _wrapped(tmp_path, "agent", network=True)


def test_the_home_is_hidden_after_what_holds_it_and_before_what_lies_in_it(
    tmp_path: Path, configure: Callable[..., None]
) -> None:
    home = tmp_path / "place" / "home"
    configure(home=home)
    line = _wrapped(tmp_path, "agent", home=str(home / "pool" / "ann"))
    places = [str(tmp_path / "place"), str(home), str(home / "pool" / "ann")]
    assert sorted(places, key=line.index) == places
    assert _pairs(line)[str(home)] == "--tmpfs"


def test_a_directory_that_became_a_symlink_is_not_opened(tmp_path: Path) -> None:
    _wrapped(tmp_path, "agent")
    (tmp_path / "place" / "out").rmdir()
    (tmp_path / "place" / "out").symlink_to("/etc")
    with pytest.raises(RunnerFailed, match="was replaced since"):
        _wrapped(tmp_path, "agent")


def test_a_machine_without_one_says_what_is_only_asked(
    monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    monkeypatch.setattr(sandbox, "state", lambda: sandbox.SandboxState(False, "there is no bubblewrap"))
    assert sandbox.describe_limits(RUNNER).startswith("only asked, not enforced: there is no bubblewrap.")
    sandbox.check(RUNNER)
    configure(pool_sandbox="required")
    with pytest.raises(NexusError) as refused:
        sandbox.check(RUNNER)
    assert refused.value.details == {"rule": "sandbox"}
    sandbox.check(REHEARSAL)


@pytest.mark.usefixtures("starts_processes")
def test_a_machine_whose_kernel_forbids_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'No permissions to create new namespace' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sandbox, "_state", None)
    assert "No permissions to create new namespace" in sandbox.state().why


@pytest.mark.usefixtures("starts_processes")
def test_a_trial_that_ran_out_of_time_says_nothing_and_is_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program, busy = tmp_path / "bwrap", tmp_path / "busy"
    program.write_text(f"#!/bin/sh\nwhile [ -e {busy} ]; do /bin/sleep 0.1; done\necho 'no namespaces' >&2\nexit 1\n")
    program.chmod(0o755)
    busy.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    for name, value in {"_state": None, "TRIAL_SECONDS": 0.3, "RETRY_SECONDS": 0.1}.items():
        monkeypatch.setattr(sandbox, name, value)
    assert sandbox.state().works, "nothing starts outside of a sandbox that may work"
    monkeypatch.setattr(sandbox, "TRIAL_SECONDS", 30)
    busy.unlink()
    until(lambda: not sandbox.state().works)
    assert "no namespaces" in sandbox.state().why


@pytest.mark.usefixtures("starts_processes")
def test_it_is_tried_before_a_server_takes_connections(
    configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody waits for a program")

    configure(control=True, home=tmp_path)
    monkeypatch.setattr(ENDPOINT, "token", None)
    monkeypatch.setattr(sandbox, "_state", None)
    admit()
    monkeypatch.setattr(subprocess, "run", starts)
    assert sandbox.describe_limits(RUNNER)


TRIALS = {
    "read another's file": "cat {outside}/secret",
    "write in its directory, but in no write path": "touch x",
    "write to the system": "touch /usr/x",
    "remount": "mount -o remount,bind,rw {place}",
    "read the hub's home": "ls {home}/* | grep .",
    "read accounts' secrets": "cat /etc/shadow",
    "leave by a symlink": "ln -s {outside}/secret out/link && cat out/link",
    "make a hard link": "ln {outside}/secret out/link",
    "leave by proc": "cat /proc/1/root{outside}/secret",
    "see other processes": "test $(ls -d /proc/[0-9]* | wc -l) -gt 9",
    "signal the hub": "kill -0 {hub}",
    "reach the network": "grep -v -e lo: -e Inter -e face /proc/net/dev",
    "make a device": "mknod out/disk b 8 0",
    "see the machine's disks": "ls /dev/sd* /dev/vd* /dev/nvme*",
    "mount something": "mount -t tmpfs none out",
    "remount in a namespace of its own": "unshare -Urm mount -o remount,bind,rw {place}",
    "take the cover off the hub's home": "unshare -Urm umount {home}",
    "keep the rights of setuid programs": "grep 'NoNewPrivs:.0' /proc/self/status",
    "have a capability": "grep CapEff /proc/self/status | grep -v 0000000000000000",
    "read the hub's environment": "cat /proc/{hub}/environ",
    "trace the hub": '{python} -c "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, {hub}, 0, 0) != 0)"',
    "speak to the machine's buses": "ls /run/user /run/dbus /var/run/dbus /run/docker.sock",
    "connect to a socket of the hub": """{python} -c "import socket; socket.socket(1).connect('{outside}/socket')" """,
    "connect to a socket that has no file": """{python} -c "import socket; socket.socket(1).connect('\\0{name}')" """,
    "connect to the hub's port": '{python} -c "import socket; socket.create_connection((str(127.1), {port}))"',
    "change the kernel's settings": "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern",
    "change them in a namespace of its own": "unshare -Urpfm mount -t proc proc /proc",
    "write among the devices": "touch /dev/x",
    "dump its core": "test $(ulimit -c) != 0",
    "start processes without end": "grep 'Max processes.*unlimited' /proc/self/limits",
}
SPACE = {  # which fills up with what is in it, and not with the machine's memory
    "/tmp": "head -c 3000000 /dev/zero > /tmp/x",
    "/dev/shm": "head -c 3000000 /dev/zero > /dev/shm/x",
}


@pytest.mark.usefixtures("works")
@pytest.mark.parametrize("trial", TRIALS)
def test_what_is_tried_in_it_fails(tmp_path: Path, trial: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("s3cret")
    name = secrets.token_hex(8)
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as abstract, socket.socket() as port:
        for listening, address in ((named, str(outside / "socket")), (abstract, f"\0{name}"), (port, ("127.0.0.1", 0))):
            listening.bind(address)
            listening.listen()
        command = TRIALS[trial].format(
            outside=outside,
            place=tmp_path / "place",
            home=CoreSettings.current().home,
            hub=os.getpid(),
            python=sys.executable,
            name=name,
            port=port.getsockname()[1],
        )
        line = _wrapped(tmp_path, "sh", "-c", f"echo begun; {command}")
        tried = subprocess.run(line, capture_output=True, text=True, check=False)
    assert tried.stdout.startswith("begun"), tried.stderr
    assert tried.returncode != 0 and "s3cret" not in tried.stdout
    assert {made.name for made in (tmp_path / "place" / "out").iterdir()} <= {"link"}


@pytest.mark.usefixtures("runs_sandbox")
@pytest.mark.parametrize("place", SPACE)
def test_its_temporary_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    if not sandbox.state().bounds_memory:
        pytest.skip("no sandbox on this machine that can")
    monkeypatch.setattr(sandbox, "MOST_PRIVATE", 2_000_000)
    line = _wrapped(tmp_path, "sh", "-c", f"echo begun; {SPACE[place]}")
    tried = subprocess.run(line, capture_output=True, text=True, check=False)
    assert tried.stdout.startswith("begun") and "No space left" in tried.stderr


@pytest.mark.usefixtures("works")
@pytest.mark.skipif(os.geteuid() == 0, reason="no limit bounds root's processes")
def test_its_processes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_PROCESSES", 20)
    line = _wrapped(tmp_path, "sh", "-c", "echo begun; for i in $(seq 40); do sleep 60 & done")
    tried = subprocess.run(line, capture_output=True, text=True, check=False)
    assert tried.stdout.startswith("begun"), tried.stderr
    assert tried.returncode != 0 and "fork" in tried.stderr


@pytest.mark.usefixtures("works")
def test_what_takes_a_directorys_place_while_it_is_started_is_not_used(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "out").mkdir(parents=True)
    line = _wrapped(tmp_path, "touch", "out/new")
    (tmp_path / "place").rename(tmp_path / "before")
    (tmp_path / "place").symlink_to(outside)  # between the judgement and the mount
    tried = subprocess.run(line, capture_output=True, text=True, check=False)
    assert tried.returncode != 0 and not list((outside / "out").iterdir())
    assert "was replaced while this was started" in tried.stderr


@pytest.mark.usefixtures("works")
def test_a_database_in_the_agents_directory_is_hidden_with_what_is_not_in_it_yet(
    tmp_path: Path, configure: Callable[..., None]
) -> None:
    database = tmp_path / "place" / "nexus.db"
    database.parent.mkdir()
    for behind in ("", "-wal", "-shm"):
        Path(f"{database}{behind}").write_text("s3cret")
    configure(db_path=database)
    line = _wrapped(tmp_path, "sh", "-c", "cat nexus.db nexus.db-wal nexus.db-shm")
    tried = subprocess.run(line, capture_output=True, text=True, check=False)
    assert "s3cret" not in tried.stdout


@pytest.mark.usefixtures("works")
def test_what_is_allowed_in_it_works(tmp_path: Path) -> None:
    line = _wrapped(tmp_path, "sh", "-c", "echo text > out/new; echo own > /tmp/own; cat out/new /tmp/own")
    tried = subprocess.run(line, capture_output=True, text=True, check=False)
    assert tried.stdout == "text\nown\n", tried.stderr
    assert (tmp_path / "place" / "out" / "new").read_text() == "text\n"
    assert not Path("/tmp/own").exists()
    python = _wrapped(tmp_path, sys.executable, "-c", "print(1)")
    assert subprocess.run(python, capture_output=True, text=True, check=False).stdout == "1\n"
    piped = _wrapped(tmp_path, "sh", "-c", "yes | head -n 1")
    said = subprocess.run(piped, capture_output=True, text=True, check=False)
    assert (said.stdout, said.stderr) == ("y\n", ""), "a signal ends who writes into a pipe that nobody reads"


@pytest.mark.usefixtures("works")
async def test_what_a_terminals_environment_names_is_looked_for_inside(tmp_path: Path) -> None:
    own, outside = tmp_path / "place" / "out", tmp_path / "outside"
    own.mkdir(parents=True)
    for name in ("bwrap", "env"):  # its own, which would be started in place of the sandbox
        (own / name).write_text(f"#!/bin/sh\ntouch {outside}\n")
        (own / name).chmod(0o755)
    terminals = Terminals(PoolAgent(), lambda command, cwd: _wrapped(tmp_path, *command), processes.environment())
    given = {"PATH": f"{own}:/usr/bin:/bin", "LD_PRELOAD": "", "A": "b=c d"}
    terminal = terminals.get(await terminals.create(["sh", "-c", "echo $PATH $A"], str(own), given, None))
    assert await terminal.ended() == 0
    assert terminal.output.text == f"{own}:/usr/bin:/bin b=c d\n"
    piped = terminals.get(await terminals.create(["sh", "-c", "yes | head -n 1"], str(own), given, None))
    assert (await piped.ended(), piped.output.text) == (0, "y\n")
    await terminals.create(["sleep", "600"], str(own), given, None)

    def running() -> Iterator[tuple[str, str | None, str]]:
        """Of each program below this one: its name, the variable that it has, and its command line."""
        for each in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):  # it just ended
                yield each.name(), each.environ().get("A"), " ".join(each.cmdline())

    def having() -> set[str]:
        return {name for name, value, _ in running() if value == "b=c d"}

    while "sleep" not in having():
        await asyncio.sleep(0.01)
    assert having() == {"sleep"}, "and none of those that start the sandbox"
    assert not any("b=c d" in line for _, _, line in running()), "which everybody on the machine may read"
    await terminals.end()
    assert not outside.exists()


@pytest.mark.usefixtures("works")
async def test_naming_a_program_shows_no_file_from_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("#!/bin/sh\necho s3cret\n")
    secret.chmod(0o755)
    tried = subprocess.run(_wrapped(tmp_path, str(secret)), capture_output=True, text=True, check=False)
    assert tried.returncode == sandbox_init.NOT_FOUND and "s3cret" not in tried.stdout


@pytest.mark.usefixtures("starts_processes")
def test_git_ends_with_the_process_that_called_it(tmp_path: Path) -> None:
    seconds = f"600.{secrets.randbelow(10**9)}"  # by which it is found
    place = str(tmp_path)
    alias = f"alias.x=!setsid sleep {seconds} & echo > {place}/began; wait"
    script = f"Git({place!r}, {place!r}, (), ({place!r},)).run('-c', {alias!r}, 'x')"
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "nexus_site.settings", "NEXUS_HOME": f"{tmp_path}/home"}
    code = f"import django; django.setup()\nfrom nexus.control.runners.git import Git\n{script}"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environ) as hub:
        until((tmp_path / "began").exists)
        hub.kill()
    until(lambda: seconds not in arguments())


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("end", ["closed", "written to"])
def test_nothing_begins_in_a_sandbox_after_the_end_of_who_started_it(tmp_path: Path, end: str) -> None:
    held, lifeline = os.pipe()
    command = [sys.executable, "-I", "-S", sandbox_init.__file__, "4096", "--", "touch", f"{tmp_path}/began"]
    environ = {**os.environ, LIFELINE: str(held)}
    assert subprocess.run(command, env=environ, pass_fds=(held,), check=False).returncode == 0
    (tmp_path / "began").unlink()
    if end == "closed":
        os.close(lifeline)
    else:
        os.write(lifeline, b"x")
    assert subprocess.run(command, env=environ, pass_fds=(held,), check=False).returncode == sandbox_init.ORPHANED
    assert not (tmp_path / "began").exists()
