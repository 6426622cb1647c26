"""Seconds of the soak: the ten minutes of it are `python -m benchmarks.soak`."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from benchmarks.soak.__main__ import soak
from benchmarks.soak.servers import START_SECONDS, Servers
from tests.postgres import store_of


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.long)])
def test_a_team_loses_nothing_while_servers_die_the_disk_fills_and_the_clock_moves(
    tmp_path: Path, seconds: int
) -> None:
    report = soak(seconds, store_of(tmp_path).get("NEXUS_DATABASE_URL"))
    assert report["violations"] == []
    assert report["kills"]
    assert [trouble for trouble in report["troubles"] if "SIGTERM" in trouble]
    assert [trouble for trouble in report["troubles"] if "SIGKILL" in trouble]
    for work in ("messages_sent", "messages_acknowledged", "handoffs_completed", "events_followed"):
        assert report[work], "the team was at work, however little a loaded machine let it do"


def test_a_soak_ends_what_it_started_and_nothing_else(tmp_path: Path) -> None:
    servers = Servers(tmp_path)
    mine = subprocess.Popen(["sleep", "600"], env=servers.environ)
    with subprocess.Popen(["sleep", "600"]) as other:
        servers.close()
        try:
            assert mine.wait(START_SECONDS) == -signal.SIGKILL
            assert other.poll() is None
        finally:
            other.kill()
