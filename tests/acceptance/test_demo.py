"""`nexus demo`, played for real and checked by its own account."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from coordination.models import Event
from nexus.control.runners.rehearsal import NOTE
from nexus_site.demo import pool
from nexus_site.demo.team import DemoFailure
from nexus_site.demo.timeline import Lines
from nexus_site.management.commands.demo import CAST
from tests.acceptance.hub import START_SECONDS, Hub
from tests.acceptance.pool import until
from tests.acceptance.processes import environment, nexus
from tests.postgres import SERVER, url

DJANGO = {"DJANGO_SETTINGS_MODULE": "nexus_site.settings"}
POOL = """
import sys
from pathlib import Path
import django
django.setup()
from nexus_site import ending
from nexus_site.demo import pool
from nexus_site.demo.timeline import Lines
ending.end_at_signals(SystemExit(130), SystemExit(143))
home, project = map(Path, sys.argv[1:])
with pool.serving(home, 1) as hub:
    pool.play(hub, project, Lines(print, colour=False))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's own home, which no hub serves and which is not there yet; neither is its store."""
    return tmp_path_factory.mktemp("own") / "home"


@pytest.fixture(scope="module")
def played(own: Path) -> subprocess.CompletedProcess[str]:
    """A play, whole."""
    store = {"NEXUS_DATABASE_URL": url("nexus_tests_that_is_not_there")} if SERVER else {"NEXUS_DB_PATH": f"{own}.db"}
    played = nexus(own, "demo", "--rounds", "2", "--pause", "0.02", NEXUS_POOL_WAKE_DEPTH="1", **store)
    assert played.returncode == 0, played.stdout + played.stderr
    return played


def test_it_plays_in_a_throwaway_home_and_loses_nothing(played: subprocess.CompletedProcess[str], own: Path) -> None:
    assert "✗" not in played.stdout and played.stdout.count("✓") == 7 + 9
    assert "demo-reviewer  reads from demo-worker" in played.stdout
    assert list(own.parent.iterdir()) == [], "one's own home and store are left alone"


def test_it_names_the_pages_on_which_to_look_on(played: subprocess.CompletedProcess[str]) -> None:
    pages = re.findall(r"^  \w+ +(http://127\.0\.0\.1:\d+)/admin/(\w+)/$", played.stdout, re.MULTILINE)
    assert [page for _, page in pages] == ["timeline", "board", "events", "pool", "runs"]
    assert len({hub for hub, _ in pages}) == 1, "one hub for both parts"


def test_it_shows_a_pool_that_works_by_mail_and_closes(played: subprocess.CompletedProcess[str]) -> None:
    told = played.stdout.partition("a pool.")[2]
    for worker in ("pool-worker-1", "pool-worker-2"):
        for line in (
            f"pool-planner created {worker} in the pool, worker",
            f"{worker} is woken by mail of pool-planner",
            f"pool-planner wrote JSON to {worker}",
            f"{worker} answered: {NOTE} It is built, and reads JSON.",
            f"{worker} ended: destroyed",
        ):
            assert line in told, told
    assert "pool-planner is woken by mail of pool-worker-" in told, told  # of both at once, when both ask at once
    assert "pool-planner marked pool-planner as done" in told
    assert told.count("answered: ") == told.count(f"answered: {NOTE}") >= 8


def test_it_tells_why_its_hub_did_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runners.toml").write_text("[[")
    monkeypatch.setattr(pool, "RUNNERS", tmp_path / "runners.toml")
    with pytest.raises(DemoFailure, match=r"hub did not start: .*is no TOML"), pool.serving(tmp_path / "home", 0):
        pytest.fail("It started.")


def test_a_turn_that_came_to_nothing_ends_it(db: None) -> None:
    told: list[str] = []
    about = {"agent_id": "demo-planner", "pool_agent_id": "pool_1"}
    events = [
        Event(event_id=1, type="turn.started", actor_agent_id="demo-planner", payload=about),
        Event(event_id=2, type="turn.failed", actor_agent_id="demo-planner", payload={**about, "why": "No idea."}),
    ]
    with pytest.raises(DemoFailure, match="demo-planner failed: No idea"):
        pool.narrate(events, Lines(told.append, colour=False))
    assert [line.split(" s  ")[1] for line in told] == ["demo-planner began a turn"]


ENDS = pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)])


@ENDS
def test_its_pool_leaves_no_process_when_it_is_ended_in_its_midst(tmp_path: Path, number: int, code: int) -> None:
    assert ended_in_its_midst(number, tmp_path, "-c", POOL, str(tmp_path / "home"), str(tmp_path)) == code


def ended_in_its_midst(number: int, tmp_path: Path, *program: str) -> int:
    """Signal a Python that plays the demo's pool, once the planner is at work; its exit code. All it began ends."""
    with subprocess.Popen(
        [sys.executable, *program],
        env=environment(
            tmp_path / "home", PYTHONUNBUFFERED="1", TMPDIR=str(tmp_path), **DJANGO
        ),  # a kill leaves its place
        text=True,
        stdout=subprocess.PIPE,
    ) as playing:
        assert playing.stdout is not None
        assert next((line for line in playing.stdout if "pool-planner began a turn" in line), None)
        begun = psutil.Process(playing.pid).children(recursive=True)
        playing.send_signal(number)
        code = playing.wait(START_SECONDS)
    assert begun
    until(lambda: not any(process.is_running() for process in begun))
    return code


@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
def test_it_plays_on_the_hub_that_serves_the_home(hub: Hub, times: int) -> None:
    for _ in range(times):
        played = nexus(hub.home, "demo", "--rounds", "1", "--fast")
        assert played.returncode == 0, played.stdout + played.stderr
        assert f"on the hub at {hub.url}" in played.stdout and "✗" not in played.stdout
        assert f"{hub.url}/admin/board/" in played.stdout
        assert "What stays is history: the project " in played.stdout
        assert not [agent for agent in hub.call("agent_list")["agents"] if agent["agent_id"].startswith("demo-")]


def test_it_leaves_its_agents_when_asked(hub: Hub) -> None:
    played = nexus(hub.home, "demo", "--rounds", "1", "--fast", "--keep")
    assert played.returncode == 0, played.stdout + played.stderr
    assert {*CAST} <= {agent["agent_id"] for agent in hub.call("agent_list")["agents"]}
    for agent_id in CAST:
        hub.call("agent_delete", agent_id=agent_id)


def test_it_refuses_a_bad_number_of_rounds(tmp_path: Path) -> None:
    ended = nexus(tmp_path / "home", "demo", "--rounds", "none")
    assert ended.returncode == 1 and "CONFIG_ERROR" in ended.stderr
