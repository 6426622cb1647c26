"""A minute of the soak: the ten minutes of it are `python -m benchmarks.soak`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.soak import soak
from tests.postgres import store_of


def test_a_team_loses_nothing_while_servers_die_the_disk_fills_and_the_clock_moves(tmp_path: Path) -> None:
    report = soak(60, store_of(tmp_path).get("NEXUS_DATABASE_URL"))
    assert report["violations"] == []
    assert report["kills"] >= 8
    assert [trouble for trouble in report["troubles"] if "SIGTERM" in trouble]
    assert [trouble for trouble in report["troubles"] if "SIGKILL" in trouble]
    assert report["messages_sent"] > 100 and report["handoffs_completed"] > 20, "the team was at work"
    assert report["messages_acknowledged"] > 100 and report["events_followed"] > 100
