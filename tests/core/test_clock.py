"""The clock of a process that follows another one, such as that of the database which all machines share."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

import pytest

from nexus.core import clock
from nexus.core.processes import own_environment, python

HOUR = timedelta(hours=1)


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
def test_a_process_and_those_that_it_starts_follow_a_clock_that_shows_another_time(
    monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    monkeypatch.setenv(clock.AHEAD, "0")
    monkeypatch.setattr(clock, "_ahead", timedelta())
    clock.follow(datetime.now(UTC) + ahead)
    assert abs(clock.now() - datetime.now(UTC) - ahead) < timedelta(minutes=1)
    code = "from nexus.core.clock import iso, now; print(iso(now()))"
    told = subprocess.run([*python("timeit")[:2], "-c", code], env=own_environment(), capture_output=True, text=True)
    assert abs(datetime.fromisoformat(told.stdout.strip()) - datetime.now(UTC) - ahead) < timedelta(minutes=1)


def test_clocks_that_agree_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(clock.AHEAD, "0")
    monkeypatch.setattr(clock, "_ahead", timedelta())
    clock.follow(datetime.now(UTC) + timedelta(seconds=0.2))
    assert clock._ahead == timedelta()
