"""The watchdog: however hub and worker end, nothing that they started stays."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from nexus.control.worker.watchdog import HUNG, STOP
from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.pool import runs, until

# What a tool leaves behind: gone from every group, deaf to signals.
STUBBORN = """
import signal, time
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
print(flush=True)
time.sleep(3600)
"""
MIDDLE = """
import subprocess, sys
left = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
left.stdout.readline()
print(left.pid)
"""
# A worker that lives until it is told to end.
WORKER = """
import os, signal, socket, subprocess, sys, time
middle, stubborn, lives = sys.argv[1:]
command = [sys.executable, "-c", middle, stubborn]
orphan = subprocess.run(command, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL).stdout.strip()
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: (print(signal.Signals(number).name, flush=True), os._exit(0)))
line = socket.socket(fileno=0)
line.send(b".")
print(os.getpid(), orphan, flush=True)
while True:
    time.sleep(0.05)
    if lives == "True":
        line.send(b".")
"""


class Kept:
    """A watchdog, its worker, and a process that the worker left."""

    def __init__(self, *, hang: float, lives: bool) -> None:
        worker = [sys.executable, "-c", WORKER, MIDDLE, STUBBORN, str(lives)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nexus.control.worker.watchdog", str(hang), "60", *worker],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.worker, self.orphan = (psutil.Process(int(pid)) for pid in self.process.stdout.readline().split())

    def tell(self, said: bytes) -> None:
        """On the hub's line; nothing stands for its end."""
        assert self.process.stdin is not None
        if said:
            self.process.stdin.write(said.decode())
            self.process.stdin.flush()
        else:
            self.process.stdin.close()

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what the worker heard at its end."""
        assert self.process.stdout is not None
        code = self.process.wait(START_SECONDS)
        return code, self.process.stdout.read().strip()

    def left(self) -> list[psutil.Process]:
        """Who of them is still there."""
        return [each for each in (self.worker, self.orphan) if runs(each)]


@pytest.fixture
def kept(request: pytest.FixtureRequest) -> Iterator[Kept]:
    """A watchdog, ended however the test ends."""
    made = Kept(**{"hang": 600, "lives": True, **getattr(request, "param", {})})
    yield made
    for process in (made.worker, made.orphan, made.process):
        if process in (*made.left(), made.process):
            process.kill()
    made.process.wait()
    for pipe in (made.process.stdin, made.process.stdout):
        assert pipe is not None
        pipe.close()


def test_nothing_outlives_a_killed_worker(kept: Kept) -> None:
    kept.worker.kill()
    assert kept.ended() == (128 + signal.SIGKILL, "")
    assert not kept.left()


@pytest.mark.parametrize("kept", [{"hang": 1, "lives": False}], indirect=True)
def test_a_worker_that_gives_no_sign_of_life_is_ended(kept: Kept) -> None:
    assert kept.ended() == (HUNG, "")
    assert not kept.left()


@pytest.mark.parametrize(("said", "heard"), [(STOP, "SIGTERM"), (b"", "SIGINT")])
def test_the_hubs_line_tells_the_worker_to_end(kept: Kept, said: bytes, heard: str) -> None:
    kept.tell(said)
    assert kept.ended() == (0, heard)
    assert not kept.left()


@pytest.mark.parametrize(("said", "number"), [(STOP, signal.SIGTERM), (b"", signal.SIGINT)])
def test_a_worker_that_only_starts_ends_at_once(said: bytes, number: signal.Signals) -> None:
    starts = "import time; print(flush=True); time.sleep(3600)"
    command = [sys.executable, "-m", "nexus.control.worker.watchdog", "600", "0", sys.executable, "-c", starts]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as watchdog:  # type: ignore[call-overload]
        watchdog.stdout.readline()
        watchdog.communicate(said, START_SECONDS)
    assert watchdog.returncode == 128 + number


def test_it_heeds_no_signal_of_a_terminal(kept: Kept) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        kept.process.send_signal(number)
    kept.tell(STOP)
    assert kept.ended() == (0, "SIGTERM")


def test_a_worker_hears_of_a_killed_keeper(kept: Kept) -> None:
    kept.process.kill()
    until(lambda: not runs(kept.worker))
