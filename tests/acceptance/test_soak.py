"""A minute of the soak, in `make long`. What it promises of kills, `make check` plays in test_crash.py, test_relay.py
and test_scaled_out.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.soak.__main__ import soak
from tests.postgres import store_of

SECONDS = 60


@pytest.mark.long
def test_a_team_loses_nothing_while_servers_die_the_disk_fills_and_the_clock_moves(tmp_path: Path) -> None:
    report = soak(SECONDS, store_of(tmp_path).get("NEXUS_DATABASE_URL"))
    assert report["violations"] == []
    assert report["kills"]
    assert [trouble for trouble in report["troubles"] if "SIGTERM" in trouble]
    assert [trouble for trouble in report["troubles"] if "SIGKILL" in trouble]
    for work in ("messages_sent", "messages_acknowledged", "handoffs_completed", "events_followed"):
        assert report[work], "the team was at work, however little a loaded machine let it do"
