"""Files of ended agents are removed from the home, and nothing else; a turn's key ends with the turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from coordination.services import keys
from nexus.control import maintenance
from nexus.control.agents import pool, turns
from nexus.control.models import PoolAgent, PoolWorktree, TurnStatus
from nexus.control.runners.base import LOGS
from nexus.control.worktrees import trees
from nexus.core.clock import now
from tests.conftest import Nest
from tests.control.pool import HERE, create, send
from tests.keys import agent_of_key

pytestmark = pytest.mark.django_db

ACP = '[runners.coder]\nkind = "acp"\ncommand = ["coder"]\n[runners.stage]\nkind = "rehearsal"\n'


@pytest.fixture
def home(tmp_path: Path, configure: Callable[..., None]) -> Path:
    (tmp_path / "runners.toml").write_text(ACP)
    (tmp_path / LOGS).mkdir(parents=True)
    configure(control=True, home=tmp_path)
    return tmp_path


@pytest.fixture
def agents(home: Path) -> dict[str, PoolAgent]:
    """One that lives, one that ended, one that was forgotten; each left a HOME and a log."""
    made = {name: create(name, cwd=str(home)) for name in ("lives", "ended", "forgotten")}
    (home / "outside").mkdir()
    (home / "outside" / "file").touch()
    for name, agent in made.items():
        (home / "pool" / agent.pk / "deep").mkdir(parents=True)
        (home / "pool" / agent.pk / "link").symlink_to(home / "outside")
        for log in (f"{name}.jsonl", f"{name}.jsonl.1"):
            (home / LOGS / log).touch()
    (home / "pool" / "left").symlink_to(home / "outside")
    pool.end(made["ended"], None, now(), why="a test")
    PoolAgent.objects.filter(agent_id="forgotten").delete()
    return made


class Looked:
    """What a doctor's check is given."""

    def __init__(self, home: Path) -> None:
        self.path = home

    def tables(self) -> set[str]:
        return {"pool_agents"}

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())


def there(home: Path) -> set[str]:
    """What lies in the places that are cleared."""
    return {path.name for place in ("pool", LOGS) for path in (home / place).iterdir()}


def test_what_is_left_of_agents_that_are_no_more_goes(home: Path, agents: dict[str, PoolAgent]) -> None:
    maintenance.clear()
    logs = {f"{name}.jsonl{behind}" for name in ("lives", "ended") for behind in ("", ".1")}
    assert there(home) == {agents["lives"].pk, *logs}
    assert (home / "outside" / "file").exists(), "no symlink was followed"


def test_doctor_tells_of_it_and_mends_it(home: Path, agents: dict[str, PoolAgent]) -> None:
    (finding,) = maintenance.CHECKS[-1].check(Looked(home))
    assert finding.problem.startswith("5 directories and logs") and finding.note
    assert finding.mend is not None
    finding.mend()
    assert list(maintenance.CHECKS[-1].check(Looked(home))) == []
    assert (home / "pool" / agents["lives"].pk / "deep").is_dir()


@pytest.mark.parametrize("by", ["the hub", "doctor"])
def test_nested_directories_of_an_agent_stop_neither(
    home: Path, agents: dict[str, PoolAgent], by: str, nested: Nest
) -> None:
    nested(home / "pool" / agents["ended"].pk)
    (finding,) = maintenance.CHECKS[-1].check(Looked(home))
    assert finding.mend is not None
    finding.mend() if by == "doctor" else maintenance.clear()
    assert list(maintenance.CHECKS[-1].check(Looked(home))) == []


def test_what_a_discard_left_goes_unless_it_is_under_way(home: Path, db: None, nested: Nest) -> None:
    worktrees = home.resolve() / trees.FOLDER
    gone = dict.fromkeys(("git_dir", "branch", "base", "origin", "origin_git_dir"), "/gone")
    for name, state in (("crashed", "discarded"), ("under-way", "discarded"), ("kept", "kept")):
        path = worktrees / name
        path.mkdir(parents=True)
        nested(path, 5)
        about = {"path": str(path), "borrowed": ["/gone/objects"], "state": state, "created_at": now()}
        PoolWorktree.objects.create(worktree_id=name, agent=create(name), **gone, **about)
    with trees.lock(str(worktrees / "under-way")):
        maintenance.clear()
    assert sorted(each.name for each in worktrees.iterdir()) == [trees.LOCKS, "kept", "under-way"]


def test_a_home_without_a_pool_has_nothing_left(tmp_path: Path, configure: Callable[..., None]) -> None:
    configure(home=tmp_path / "not-there")
    maintenance.clear()
    assert list(maintenance.CHECKS[-1].check(Looked(tmp_path / "not-there"))) == []


def test_a_key_of_a_turn_that_was_cut_off_opens_nothing_and_its_agents_own_stays(home: Path) -> None:
    create("ann", cwd=str(home), runner="coder")
    own = keys.issue(agent_id="ann", operator="olga")
    assert turns.claim(send("ann").pk)
    lent = keys.lend(agent_id="ann")  # as the turn does, of a runner that is a process
    assert turns.interrupt("its worker was killed", HERE) == 1
    assert (agent_of_key(lent), agent_of_key(own)) == (None, "ann")
    turn = PoolAgent.objects.get().turns.get()
    assert turn.status == TurnStatus.INTERRUPTED


def test_a_key_ends_with_its_agent(home: Path) -> None:
    create("ann", cwd=str(home))
    its_own = [keys.issue(agent_id="ann", operator="olga"), keys.lend(agent_id="ann")]
    pool.end(PoolAgent.objects.get(), None, now(), why="a test")
    assert [agent_of_key(key) for key in its_own] == [None, None]


def test_the_empty_git_directories_of_ended_agents_go_and_those_of_others_stay(
    agents: dict[str, PoolAgent], tmp_path: Path
) -> None:
    """They stood in their sandboxes for repositories that are not there."""
    for name in ("empty", "shared", "used"):
        (tmp_path / name / ".git").mkdir(parents=True)
    (tmp_path / "used" / ".git" / "HEAD").touch()
    PoolAgent.objects.filter(agent_id="lives").update(write_paths=[str(tmp_path / "shared")])
    paths = [str(tmp_path / name) for name in ("empty", "shared", "used")]
    PoolAgent.objects.filter(agent_id="ended").update(write_paths=paths)
    maintenance.clear()
    assert [(tmp_path / name / ".git").exists() for name in ("empty", "shared", "used")] == [False, True, True]
