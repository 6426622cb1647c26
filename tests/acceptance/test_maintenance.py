"""What a server does for the store by itself: one pass at its start, and a reaper when asked for."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests import warm
from tests.acceptance.hub import START_SECONDS, serving
from tests.acceptance.log import VALUE, opened
from tests.acceptance.processes import environment


def nexus(home: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return warm.run([*arguments, "--home", str(home)], environment(home), given=stdin, timeout=START_SECONDS)


@pytest.fixture
def home(home: Path) -> Path:
    """A home whose store holds an event for each of the last 40 days."""
    now = datetime.now(UTC).replace(tzinfo=None)
    with opened(home) as store:
        store.execute(
            "INSERT INTO workspaces (workspace_id, number, root_realpath, created_at, last_seen_at)"
            " VALUES ('w', 1, '/w', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)"
        )
        for days in range(40, 0, -1):
            store.execute(
                "INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at)"
                f" VALUES (1, 'workspace', 'note', '{{}}', 'public', {VALUE})",
                [str(now - timedelta(days=days))],
            )
    return home


def notes(home: Path) -> int:
    with opened(home) as store:
        count: int = store.execute("SELECT count(*) FROM events WHERE type = 'note'").fetchone()[0]
    return count


def test_it_prunes_at_the_start_of_an_agents_server_when_asked(home: Path) -> None:
    assert nexus(home, "runmcp").returncode == 0
    assert notes(home) == 40
    assert nexus(home, "runmcp", "--auto-prune-on-start", "true").returncode == 0
    assert notes(home) == 29


def test_it_prunes_in_the_background_of_a_hub_with_a_reaper(home: Path) -> None:
    with serving(home, "--reaper"):
        deadline = time.monotonic() + START_SECONDS
        while notes(home) == 40:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert notes(home) == 29
