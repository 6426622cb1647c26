"""A machine that slept, or whose clock was set: what waits for an agent goes on, and tells each thing once."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from nexus.hooks import hook_state, waking
from nexus.hooks.hook_state import hook_id
from tests.acceptance.hub import START_SECONDS
from tests.hooks.harness import until
from tests.hooks.test_waking import Waiters, waiters
from tests.outside import program

__all__ = ["waiters"]
pytestmark = [pytest.mark.usefixtures("starts_processes"), pytest.mark.sqlite]


class Clock:
    """The clock of the processes that have `environ`."""

    def __init__(self, folder: Path) -> None:
        program("faketime")
        (library,) = Path("/usr/lib").glob("*/faketime/libfaketime.so.1")
        self._file = folder / "clock"
        self.environ = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # which goes on as it did
            "NO_FAKE_STAT": "1",
        }
        self.set("+0")

    def set(self, by: str) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(by)
        new.replace(self._file)


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


def looked_at(waiters: Waiters) -> float | None:
    """When a waiter last looked at what waits."""
    return hook_state.last_run(waiters.harness.home, hook_id("builder", str(waiters.harness.project)))


@pytest.mark.parametrize("by", ["+1d", "-1d"])
def test_a_waiter_looks_once_when_the_clock_was_set_and_is_woken_once(waiters: Waiters, clock: Clock, by: str) -> None:
    waiter = waiters.start(**clock.environ)
    before = looked_at(waiters)
    clock.set(by)
    until(lambda: looked_at(waiters) != before)
    until(waiters.sleeping)
    spent = sum(psutil.Process(waiter.pid).cpu_times()[:2])
    waiters.write("for builder")
    _, notice = waiter.communicate(timeout=START_SECONDS)
    assert (waiter.returncode, "for builder" in notice) == (waking.WOKEN, True)
    assert spent < 5, "of many looks"


@pytest.mark.parametrize("by", ["+1d", "-1d"])
def test_a_command_waits_as_long_as_it_says_whatever_the_clock_says(waiters: Waiters, clock: Clock, by: str) -> None:
    brief, long = (
        waiters.start("wait", "--seconds", seconds, "--session", seconds, **clock.environ) for seconds in ("5", "900")
    )
    clock.set(by)
    assert brief.wait(START_SECONDS) == 3
    waiters.write("for builder")
    said, _ = long.communicate(timeout=START_SECONDS)
    assert (long.returncode, "for builder" in said) == (0, True)


@pytest.mark.parametrize("meanwhile", ["a message comes", "its client is gone"])
def test_a_waiter_that_slept_sees_what_came_meanwhile(waiters: Waiters, meanwhile: str) -> None:
    waiter = waiters.start()
    waiter.send_signal(signal.SIGSTOP)
    if meanwhile == "a message comes":
        waiters.write("for builder")
    else:
        assert waiter.stderr
        waiter.stderr.close()  # which it writes to
    waiter.send_signal(signal.SIGCONT)
    assert waiter.wait(START_SECONDS) == (waking.WOKEN if meanwhile == "a message comes" else 0)
