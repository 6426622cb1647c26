"""Programs that an agent runs: bounded, and gone with all that they started."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import time
from pathlib import Path

import psutil
import pytest

from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.runners import processes
from nexus.control.runners.tools import catalog
from nexus.control.runners.tools.catalog import ProgramEnd
from nexus.control.runners.tools.files import ToolFailed, ToolRefused

pytestmark = pytest.mark.usefixtures("starts_processes")

OPEN = Path("/proc/self/fd")


@pytest.fixture
def may(tmp_path: Path) -> Permissions:
    return Permissions(Preset.TRUSTED, str(tmp_path), (str(tmp_path),))


async def run(may: Permissions, command: str, *, seconds: float) -> ProgramEnd:
    """A line of shell, outside of any sandbox."""
    return await catalog.run_program(may, ["/bin/sh", "-c", command], env=processes.environment(), seconds=seconds)


def alive(pids: Path) -> list[int]:
    """Those of the processes, noted in a file, that still run."""
    noted = [int(line) for line in pids.read_text().split()]
    return [pid for pid in noted if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


async def test_it_tells_what_a_program_prints_and_how_it_ends(may: Permissions) -> None:
    ran = await run(may, "echo out; echo err >&2; pwd; exit 3", seconds=60)
    assert (ran.code, ran.output, ran.why) == (3, f"out\nerr\n{may.cwd}\n", None)
    assert (await run(may, "cat", seconds=60)).output == ""  # it gets no input


async def test_it_gives_a_program_nothing_secret(may: Permissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL_KEY", "secret")
    monkeypatch.setenv("NEXUS_HOME", "/home")
    output = (await run(may, "env", seconds=60)).output
    names = {line.partition("=")[0] for line in output.splitlines()}
    assert "PATH" in names
    assert names <= {*processes.BASICS, "PWD", "OLDPWD", "SHLVL", "_"}


LEAVING = {
    "in its group": "sleep 600 & echo $! >> pids",
    "in a session of its own": "setsid sh -c 'echo $$ >> pids; exec sleep 600' & while ! test -s pids; do :; done",
    "with an empty environment": "env -i setsid sh -c 'echo $$ >> pids; sleep 600' & while ! test -s pids; do :; done",
    "daemons": "(setsid sh -c '(sleep 600 & echo $! >> pids)' &) ; while ! test -s pids; do :; done",
}


RUNNING_AWAY = """
import fcntl, os, time
held = open("lock", "w")
fcntl.flock(held, fcntl.LOCK_EX)  # which all that come after it share
end = time.monotonic() + 60
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


async def test_it_leaves_none_behind_of_those_that_beget_another_and_go(may: Permissions, tmp_path: Path) -> None:
    for _ in range(5):
        command = [sys.executable, "-I", "-S", "-c", RUNNING_AWAY]
        await catalog.run_program(may, command, env=processes.environment(), seconds=60)
        with (tmp_path / "lock").open() as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("command", LEAVING.values(), ids=LEAVING)
async def test_it_leaves_no_process_behind(may: Permissions, tmp_path: Path, command: str) -> None:
    ran = await run(may, command, seconds=60)
    assert ran.why is None
    assert (tmp_path / "pids").read_text()
    assert alive(tmp_path / "pids") == []


@pytest.mark.parametrize("command", LEAVING.values(), ids=LEAVING)
async def test_it_ends_a_program_with_its_call(may: Permissions, tmp_path: Path, command: str) -> None:
    running = asyncio.create_task(run(may, f"{command}; echo $$ >> pids; touch begun; sleep 600", seconds=600))
    while not (tmp_path / "begun").exists():
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert alive(tmp_path / "pids") == []


async def test_it_ends_a_program_with_a_call_that_only_begins(may: Permissions, tmp_path: Path) -> None:
    command = f"{LEAVING['with an empty environment']}; echo $$ >> pids; touch begun; sleep 600"
    running = asyncio.create_task(run(may, command, seconds=600))
    for _ in range(2):
        await asyncio.sleep(0)  # the program starts; the pipes to it are not laid
    while not (tmp_path / "begun").exists():
        time.sleep(0.01)  # nor can they be
    running.cancel()
    await asyncio.wait((running,), timeout=60)
    assert running.cancelled()
    assert alive(tmp_path / "pids") == []


async def test_it_ends_a_program_whose_time_is_over(may: Permissions, tmp_path: Path) -> None:
    ran = await run(may, "echo $$ >> pids; echo begun; sleep 600", seconds=1)
    assert (ran.code, ran.why) == (None, "it took longer than 1 seconds")
    assert alive(tmp_path / "pids") == []


async def test_it_ends_a_program_that_prints_too_much(may: Permissions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MOST_OUTPUT", 1_000_000)
    ran = await run(may, "echo first; yes", seconds=600)
    assert ran.why == "it printed over 1000000 bytes"
    assert ran.output.startswith("first\ny\n") and "bytes left out" in ran.output
    assert len(ran.output) < 3 * catalog.KEPT


async def test_it_keeps_the_beginning_and_the_end_of_an_output(may: Permissions) -> None:
    ran = await run(may, "echo first; head -c 100000 /dev/zero | tr '\\0' x; echo last", seconds=60)
    assert ran.output.startswith("first\n") and ran.output.endswith("last\n")
    assert "[67243 bytes left out]" in ran.output


async def test_it_refuses_who_may_run_nothing(may: Permissions, tmp_path: Path) -> None:
    for lesser in (
        Permissions(Preset.SANDBOXED, may.cwd, may.write_paths),
        Permissions(Preset.TRUSTED, may.cwd, may.write_paths, frozenset(("run",))),
    ):
        with pytest.raises(ToolRefused):
            await run(lesser, "touch made", seconds=60)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("command", ["nul \0", "half \ud800"])
async def test_it_says_why_a_program_cannot_start(may: Permissions, command: str) -> None:
    with pytest.raises(ToolFailed, match="cannot be started"):
        await run(may, command, seconds=60)
    gone = Permissions(may.preset, str(Path(may.cwd) / "gone"), ())
    with pytest.raises(ToolFailed, match="No such file or directory"):
        await run(gone, "true", seconds=60)


async def test_it_keeps_no_descriptor_open(may: Permissions) -> None:
    await run(may, "true", seconds=60)
    before = set(OPEN.iterdir())
    for _ in range(5):
        await run(may, "echo x", seconds=60)
    assert len(set(OPEN.iterdir()) - before) <= 1  # of looking
