"""`nexus demo`, played for real."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nexus_site import demo
from tests.acceptance.processes import nexus
from tests.postgres import SERVER, url


@pytest.mark.usefixtures("starts_hubs")
def test_it_plays_in_a_throwaway_home(tmp_path: Path) -> None:
    own = tmp_path / "home"
    store = {"NEXUS_DATABASE_URL": url("nexus_tests_that_is_not_there")} if SERVER else {"NEXUS_DB_PATH": f"{own}.db"}
    played = nexus(own, "demo", "--rounds", "2", "--pause", "0.02", **store)

    assert played.returncode == 0, played.stdout + played.stderr
    pages = re.findall(r"^  http://127\.0\.0\.1:\d+/admin/([\w/]+)/$", played.stdout, re.MULTILINE)
    assert pages == ["timeline", "board", "coordination/event"]
    assert played.stdout.count("handoff.completed") == 2
    assert re.search(r"message.created +demo-reviewer → demo-worker-\d +Reviewed", played.stdout), played.stdout
    assert list(tmp_path.iterdir()) == [], "one's own home and store are left alone"


@pytest.mark.usefixtures("starts_hubs")
def test_it_tells_why_its_hub_did_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "python", lambda *_: [sys.executable, "-c", "raise SystemExit('no port is free')"])
    with pytest.raises(demo.DemoFailure, match="hub did not start: no port is free"), demo.serving(tmp_path):
        pytest.fail("It started.")


def test_it_refuses_a_bad_number_of_rounds(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "demo", "--rounds", "none")
    assert ended.returncode == 1 and "CONFIG_ERROR" in ended.stderr
