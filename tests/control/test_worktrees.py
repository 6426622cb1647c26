"""Work trees of agents' own: made from a repository, compared, merged into it or not, and never lost."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import shutil
import subprocess
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from coordination.models import Event
from coordination.toolset import COORDINATION
from nexus.control.agents import turns
from nexus.control.maintenance import CHECKS
from nexus.control.models import MergeState, PoolAgent, PoolWorktree, TurnStatus, WorktreeMerge
from nexus.control.permissions import rules
from nexus.control.runners.git import Git, GitFailed, origin_of
from nexus.control.toolset import CONTROL
from nexus.control.worktrees import merging, trees
from nexus.control.worktrees.lane import LANE_WORK
from nexus.control.worktrees.trees import FOLDER, LOCKS
from nexus.core.background_work import work_once
from nexus.core.config import CoreSettings
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.waiting import SLOW, WRITERS, in_thread
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import arguments as every_argument
from tests.conftest import OPERATOR, at_once
from tests.control.test_housekeeping import Looked
from tests.control.wire import Wire
from tests.git import git

Done = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def pool(git_alone: None, configure: Callable[..., None], tmp_path: Path) -> None:
    """A pool with a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    configure(control=True, home=home)


@pytest.fixture
def repository(runs_git: None, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a commit: the copy of one that is made once."""
    made_once = tmp_path_factory.getbasetemp() / "repository"
    if not made_once.exists():
        (made_once / "src").mkdir(parents=True)
        git(made_once, "init", "--quiet")
        (made_once / "notes.txt").write_text("one\n")
        (made_once / "src" / "main.py").write_text("print()\n")
        git(made_once, "add", ".")
        git(made_once, "commit", "--quiet", "-m", "Begin")
    return Path(shutil.copytree(made_once, tmp_path / "repository"))


def does(name: str, caller: Caller = OPERATOR, **arguments: Any) -> dict[str, Any]:
    return dict(dispatch.run(CONTROL, caller, name, arguments))


def merged(agent_id: str, caller: Caller = OPERATOR) -> WorktreeMerge:
    """What came of an agent's work in the merge queue."""
    answer = does("pool_worktree_queue", caller, agent_id=agent_id)
    assert answer["ok"], answer
    work_once(LANE_WORK)
    return WorktreeMerge.objects.get(pk=answer["data"]["merge_id"])


def merge(tree: trees.Tree) -> None:
    """Do what the merge queue does with a worktree, without a store; nothing if there is nothing to merge."""
    target = trees.hand_in(tree, "Work")
    outcome, commit = merging.prepare(tree.source, target, tree.base, tree.ref(trees.LANE), "Merge it")
    if commit:
        merging.fast_forward(tree.source, target, outcome.target, commit)


@pytest.fixture
def made(db: None, repository: Path) -> Path:
    """The work tree of an agent called smith."""
    assert does("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)["ok"]
    return Path(PoolWorktree.objects.get().path)


def told(*types: str) -> list[str]:
    return list(Event.objects.filter(type__in=types).order_by("event_id").values_list("type", flat=True))


def test_it_gives_an_agent_a_branch_and_a_directory_below_the_home(made: Path, repository: Path) -> None:
    agent = PoolAgent.objects.get()
    assert agent.cwd == str(made)
    assert agent.write_paths == [str(made)]
    assert made.parent == CoreSettings.current().home / FOLDER
    assert git(made, "branch", "--show-current") == "nexus/smith"
    assert (made / "notes.txt").read_text() == "one\n"
    assert git(repository, "status", "--porcelain") == ""


def test_its_beginning_stays_although_its_branch_goes_and_the_history_is_rewritten(
    made: Path, repository: Path
) -> None:
    git(repository, "branch", "--quiet", "-D", "nexus/smith")
    git(repository, "commit", "--quiet", "--amend", "-m", "Anew")
    git(repository, "reflog", "expire", "--expire=now", "--all")
    git(repository, "gc", "--quiet", "--prune=now")
    assert git(made, "log", "--format=%s") == "Begin"


def test_it_keeps_the_place_and_the_write_paths_that_were_asked_for(db: None, repository: Path) -> None:
    paths: dict[str, Any] = {"allowed_write_paths": [str(repository / "src" / "out")]}
    assert does("pool_create_agent", agent_id="a", cwd=str(repository / "src"), worktree=True, **paths)["ok"]
    tree, agent = PoolWorktree.objects.get(), PoolAgent.objects.get()
    assert agent.cwd == f"{tree.path}/src"
    assert agent.write_paths == [f"{tree.path}/src/out"]
    assert does("pool_create_agent", agent_id="b", cwd=str(repository), worktree=True, preset="worker")["ok"]
    assert PoolAgent.objects.get(agent_id="b").write_paths == []


def test_it_shows_what_became_of_it_uncommitted_and_new_files_included(made: Path, repository: Path) -> None:
    (made / "notes.txt").write_text("two\n")
    (made / "new.txt").write_text("new\n")
    answer = does("pool_worktree_diff", agent_id="smith")["data"]
    assert answer["files"] == ["new.txt", "notes.txt"]
    assert "+two" in answer["diff"]
    assert "+new" in answer["diff"]
    assert not answer["truncated"]
    assert git(made, "status", "--porcelain").splitlines() == ["M notes.txt", "?? new.txt"]  # as it was


def test_it_shows_and_keeps_what_the_repositorys_configuration_hides(made: Path, repository: Path) -> None:
    (made / "inner").mkdir()
    git(made / "inner", "init", "--quiet")
    git(made / "inner", "commit", "--quiet", "--allow-empty", "-m", "Inner")
    git(made, "add", "inner")
    git(made, "commit", "--quiet", "-m", "With a repository")
    git(repository, "config", "diff.ignoreSubmodules", "all")
    git(repository, "config", "diff.submodule", "log")
    answer = does("pool_worktree_diff", agent_id="smith")["data"]
    assert answer["files"] == ["inner"]
    assert answer["diff"].startswith("diff --git a/inner b/inner")
    assert merged("smith").state == MergeState.MERGED
    does("pool_destroy_agent", agent_id="smith")
    refusal = does("pool_worktree_discard", agent_id="smith")["error"]
    assert refusal["code"] == "WORKTREE_REFUSED"
    assert refusal["details"] | {"why": ""} == {"why": "", "field": "lost_too", "names": ["the repository inner"]}


def test_it_finds_each_of_the_trees_that_agents_of_one_name_left(made: Path, repository: Path) -> None:
    """Each on a branch of its own."""
    first = PoolWorktree.objects.get()
    does("pool_destroy_agent", agent_id="smith")
    assert does("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)["ok"]
    branches = PoolWorktree.objects.values_list("branch", flat=True)
    assert sorted(branches) == ["nexus/smith", "nexus/smith-2"]
    assert does("pool_worktree_diff", agent_id="smith")["data"]["path"] != str(made)
    assert does("pool_worktree_diff", agent_id="smith", worktree_id=first.pk)["data"]["path"] == str(made)
    assert does("pool_worktree_diff", agent_id="other", worktree_id=first.pk)["error"]["code"] == "NOT_FOUND"
    assert does("pool_worktree_discard", agent_id="smith", worktree_id=first.pk)["ok"]
    assert not made.exists()
    assert Path(PoolAgent.objects.living().get().cwd).exists()


def test_it_cuts_a_diff_that_is_too_long_and_tells_only_whole_names_of_very_many_files(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(20):
        (made / f"file-{number:02}").touch()
    monkeypatch.setattr(trees, "RECORDS_BYTES", 10 * len(f":000000 100644 {'0' * 40} {'0' * 40} A\0file-00\0") + 4)
    answer = does("pool_worktree_diff", agent_id="smith")["data"]
    assert answer["files"] == [f"file-{number:02}" for number in range(10)]
    assert answer["truncated"]
    monkeypatch.setattr(trees, "DIFF_BYTES", 100)
    answer = does("pool_worktree_diff", agent_id="smith")["data"]
    assert answer["truncated"] and len(answer["diff"]) <= 100


def test_it_merges_uncommitted_work_into_the_branch_that_it_came_from(made: Path, repository: Path) -> None:
    (made / "new.txt").write_text("new\n")
    (repository / "theirs.txt").write_text("theirs\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Theirs")
    entry = merged("smith")
    assert entry.state == MergeState.MERGED and git(repository, "rev-parse", "HEAD") == entry.result
    assert (repository / "new.txt").read_text() == "new\n"
    assert (repository / "theirs.txt").exists()
    assert git(repository, "status", "--porcelain") == git(made, "status", "--porcelain") == ""
    assert "nothing to merge" in does("pool_worktree_queue", agent_id="smith")["error"]["message"]
    assert told("worktree.made", "worktree.merged") == ["worktree.made", "worktree.merged"]


def test_it_overwrites_nothing_that_is_not_committed_or_ignored_where_it_merges_into(
    made: Path, repository: Path
) -> None:
    (repository / ".gitignore").write_text("local.conf\n")
    git(repository, "add", ".gitignore")
    git(repository, "commit", "--quiet", "-m", "Ignore")
    before = git(repository, "rev-parse", "HEAD")
    for name in ("local.conf", "notes.txt"):
        (made / name).write_text("mine\n")
        (repository / name).write_text("the only one\n")
        entry = merged("smith")
        assert entry.state == MergeState.RETURNED and name in entry.why
        assert (repository / name).read_text() == "the only one\n"
        assert git(repository, "rev-parse", "HEAD") == before
        git(repository, "checkout", "--quiet", ".")
        (repository / "local.conf").unlink(missing_ok=True)
    assert merged("smith").state == MergeState.MERGED


def test_it_throws_nothing_away_unasked(made: Path, repository: Path) -> None:
    assert does("pool_worktree_discard", agent_id="smith")["error"]["code"] == "WORKTREE_REFUSED"  # it lives
    does("pool_destroy_agent", agent_id="smith")
    (made / "new.txt").write_text("new\n")
    assert does("pool_worktree_discard", agent_id="smith")["error"]["code"] == "WORKTREE_REFUSED"
    git(made, "add", ".")
    git(made, "commit", "--quiet", "-m", "Mine")
    git(made, "checkout", "--quiet", "--detach", "HEAD~1")  # its work is on the branch alone
    assert does("pool_worktree_discard", agent_id="smith")["error"]["code"] == "WORKTREE_REFUSED"
    assert made.exists()
    assert does("pool_worktree_discard", agent_id="smith", changes_too=True)["ok"]
    assert not made.exists()
    assert git(repository, "branch", "--list", "nexus/*") == ""
    assert does("pool_worktree_diff", agent_id="smith")["error"]["code"] == "NOT_FOUND"


def test_it_leaves_alone_the_trees_of_others_that_are_not_there_just_now(
    made: Path, repository: Path, tmp_path: Path
) -> None:
    side, away = tmp_path / "side", tmp_path / "away"
    git(repository, "worktree", "add", "--quiet", str(side))
    (side / "notes.txt").write_text("staged\n")
    git(side, "add", ".")
    side.rename(away)  # as a disk is that is not mounted
    does("pool_destroy_agent", agent_id="smith")
    assert does("pool_worktree_discard", agent_id="smith")["ok"]
    away.rename(side)
    assert git(side, "diff", "--cached", "--name-only") == "notes.txt"
    assert git(repository, "worktree", "list").count("\n") == 1


def test_it_discards_no_directory_of_an_agent_that_lives_or_of_a_tree_that_merges_into_it(
    db: None, repository: Path
) -> None:
    assert does("pool_create_agent", agent_id="lead", cwd=str(repository), preset="trusted", worktree=True)["ok"]
    assert does("pool_create_agent", agent_id="child", parent_agent_id="lead", worktree=False)["ok"]
    assert does("pool_create_agent", agent_id="grown", parent_agent_id="lead", worktree=True)["ok"]
    for agent_id in ("lead", "grown"):
        does("pool_destroy_agent", agent_id=agent_id)
    place = Path(PoolWorktree.objects.get(agent__agent_id="lead").path)

    def refusal(name: str, agent_id: str = "lead", **more: Any) -> str:
        answer = does(name, agent_id=agent_id, **more)
        return "" if answer["ok"] else str(answer["error"]["message"])

    does("pool_send", agent_id="child", content="Go.", timeout_seconds=0)
    (waiting,) = turns.queued_turns()
    taken = turns.claim(waiting[0])
    assert taken is not None
    for name in ("pool_worktree_queue", "pool_worktree_keep", "pool_worktree_discard"):
        assert "'child' is running a turn" in refusal(name)
    turns.settle_turn(taken, turns.Ended(TurnStatus.DONE, "Done."))
    assert "'child' works in this directory" in refusal("pool_worktree_discard", changes_too=True)
    does("pool_destroy_agent", agent_id="child")
    assert "'grown' merges into it" in refusal("pool_worktree_discard", changes_too=True)
    assert place.exists()
    assert refusal("pool_worktree_discard", "grown") == refusal("pool_worktree_discard") == ""
    assert not place.exists()


@pytest.mark.parametrize("gone", ["the directory", "the repository"])
def test_it_discards_a_tree_of_which_nothing_can_be_told_when_that_is_said(
    db: None, repository: Path, tmp_path: Path, gone: str
) -> None:
    side = tmp_path / "side"
    git(repository, "worktree", "add", "--quiet", str(side))
    assert does("pool_create_agent", agent_id="smith", cwd=str(side), worktree=True)["ok"]
    does("pool_destroy_agent", agent_id="smith")
    place = Path(PoolWorktree.objects.get().path)
    shutil.rmtree({"the directory": place, "the repository": repository}[gone])
    refusal = does("pool_worktree_discard", agent_id="smith")["error"]
    assert refusal["details"]["field"] == "lost_too" and "cannot be read" in refusal["message"]
    assert not does("pool_worktree_discard", agent_id="smith", changes_too=True)["ok"]
    assert does("pool_worktree_discard", agent_id="smith", lost_too=True)["ok"]
    assert not place.exists()
    assert not repository.exists() or git(repository, "branch", "--list", "nexus/*") == ""


def test_it_takes_nothing_for_merged_that_git_cannot_read(made: Path) -> None:
    inside = os.open(made, os.O_RDONLY)
    for _ in range(30):  # deeper than a path may name
        os.mkdir("d" * 200, dir_fd=inside)
        inside, above = os.open("d" * 200, os.O_RDONLY, dir_fd=inside), inside
        os.close(above)
    os.close(os.open("precious", os.O_CREAT | os.O_WRONLY, dir_fd=inside))
    os.close(inside)
    for name in ("pool_worktree_diff", "pool_worktree_queue", "pool_worktree_keep"):
        assert "could not open directory" in does(name, agent_id="smith")["error"]["message"]
    does("pool_destroy_agent", agent_id="smith")
    assert does("pool_worktree_discard", agent_id="smith")["error"]["details"]["field"] == "lost_too"
    assert does("pool_worktree_discard", agent_id="smith", lost_too=True)["ok"] and not made.exists()


def test_a_worktree_that_the_version_before_made_goes_on_with_its_work(made: Path, repository: Path) -> None:
    """Its repository is as a shell script made it: without the settings that a worktree takes over today."""
    row = PoolWorktree.objects.get()
    shutil.rmtree(made / ".git")
    git(made, "init", "--quiet", "--template=", f"--initial-branch={row.branch}")
    (made / ".git" / "objects" / "info" / "alternates").write_text(f"{repository}/.git/objects\n")
    git(made, "config", "user.name", "smith")
    git(made, "config", "user.email", "smith@localhost")
    git(made, "update-ref", f"refs/heads/{row.branch}", row.base)
    git(made, "reset", "--quiet", "--hard")
    (made / "notes.txt").write_text("stashed\n")
    git(made, "stash", "--quiet")
    (made / "committed.txt").write_text("committed\n")
    git(made, "add", ".")
    git(made, "commit", "--quiet", "-m", "Work")
    (made / "new.txt").write_text("new\n")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == ["committed.txt", "new.txt"]
    assert merged("smith").state == MergeState.MERGED
    assert (repository / "committed.txt").exists() and (repository / "new.txt").exists()
    does("pool_destroy_agent", agent_id="smith")
    assert "WIP on" in does("pool_worktree_discard", agent_id="smith")["error"]["message"]
    assert does("pool_worktree_discard", agent_id="smith", changes_too=True)["ok"] and not made.exists()
    [stash] = git(
        repository, "for-each-ref", "--format=%(refname)", f"{trees.DISCARDED}/{made.name}/nexus/stash"
    ).split("\n")
    assert git(repository, "show", f"{stash}:notes.txt") == "stashed"


def test_of_a_worktree_that_an_old_version_linked_nothing_is_lost(made: Path, repository: Path) -> None:
    shutil.rmtree(made)
    git(repository, "worktree", "add", "--quiet", "--force", str(made), "nexus/smith")
    PoolWorktree.objects.update(git_dir=f"{repository}/.git/worktrees/{made.name}", borrowed=[])
    (made / "notes.txt").write_text("mine\n")
    does("pool_destroy_agent", agent_id="smith")
    for name in ("diff", "keep", "queue", "discard"):
        error = does(f"pool_worktree_{name}", agent_id="smith")["error"]
        assert error["code"] == "WORKTREE_REFUSED" and "commit there, merge nexus/smith" in error["message"]
    git(made, "commit", "--quiet", "--all", "-m", "Work")
    assert does("pool_worktree_discard", agent_id="smith", lost_too=True)["ok"] and not made.exists()
    assert git(repository, "show", "nexus/smith:notes.txt") == "mine"


def test_it_decides_by_those_above_the_agent_alone(db: None, repository: Path) -> None:
    create: dict[str, Any] = {"cwd": str(repository), "preset": "trusted", "worktree": False}
    assert does("pool_create_agent", agent_id="lead", **create)["ok"]
    assert does("pool_create_agent", agent_id="other", **create)["ok"]
    lead, other, smith = (Caller("test", agent_id=name) for name in ("lead", "other", "smith"))
    assert does("pool_create_agent", lead, agent_id="smith", worktree=True)["ok"]
    (Path(PoolWorktree.objects.get().path) / "new.txt").write_text("new\n")
    assert does("pool_worktree_diff", smith, agent_id="smith")["ok"]
    for name in ("pool_worktree_queue", "pool_worktree_keep", "pool_worktree_discard"):
        assert does(name, smith, agent_id="smith")["error"]["details"]["rule"] == "lineage"
        assert does(name, other, agent_id="smith")["error"]["details"]["rule"] == "lineage"
    assert merged("smith", lead).state == MergeState.MERGED


def test_it_makes_and_merges_nothing_where_the_parent_may_not(db: None, repository: Path) -> None:
    src = str(repository / "src")
    given: dict[str, Any] = {"cwd": str(repository), "allowed_write_paths": [src]}
    assert does("pool_create_agent", agent_id="lead", preset="trusted", **given)["ok"]
    assert does("pool_create_agent", agent_id="deep", preset="trusted", cwd=src, worktree=False)["ok"]
    lead = Caller("test", agent_id="lead")
    assert does("pool_create_agent", lead, agent_id="smith", worktree=True)["ok"]
    assert PoolAgent.objects.get(agent_id="smith").write_paths == []
    assert does("pool_worktree_queue", lead, agent_id="smith")["error"]["details"]["rule"] == "write_paths"
    answer = does("pool_create_agent", Caller("test", agent_id="deep"), agent_id="other", worktree=True)
    assert answer["error"]["details"]["rule"] == "cwd", "the repository lies above the parent's directory"
    assert PoolWorktree.objects.count() == 1


def test_a_refusal_is_told_though_the_tree_cannot_be_taken_away(
    db: None, repository: Path, monkeypatch: pytest.MonkeyPatch, configure: Callable[..., None]
) -> None:
    def stuck(tree: trees.Tree) -> None:
        raise GitFailed("the repository is locked")

    monkeypatch.setattr(trees, "remove", stuck)
    assert does("pool_create_agent", agent_id="smith")["ok"]
    refusal = does("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)["error"]
    assert refusal["code"] == "VALIDATION_ERROR" and "already" in refusal["message"]


def created(**arguments: Any) -> tuple[PoolAgent, str]:
    """A new agent, and the warning of the call's answer."""
    answer = does("pool_create_agent", **arguments)["data"]
    agent = PoolAgent.objects.get(agent_id=answer["agent_id"])
    tree = PoolWorktree.objects.filter(agent=agent).first()
    assert answer.get("worktree") == (agent.cwd if tree else None)
    assert rules.within(agent.cwd, (tree.path,)) if tree else agent.cwd == arguments["cwd"]
    return agent, answer.get("warning", "")


@pytest.mark.parametrize("preset", ["sandboxed", "trusted"])
def test_who_may_write_works_in_a_clone_unless_somebody_says_otherwise(db: None, repository: Path, preset: str) -> None:
    given: dict[str, Any] = {"preset": preset, "cwd": str(repository / "src")}
    agent, warning = created(**given)
    assert agent.worktree.branch.startswith("nexus/") and agent.write_paths == [agent.cwd] and warning == ""
    trusts = "Writes where you work, so you trust it"
    for asked in ({"worktree": False}, {"allowed_write_paths": ["out"]}):
        agent, warning = created(**given, **asked)
        assert bool(agent.write_paths) == warning.startswith(trusts)
    assert created(cwd=str(repository), preset="worker")[1] == ""
    assert created(cwd=str(repository), allowed_write_paths=[])[1] == ""
    assert PoolWorktree.objects.count() == 1


def test_an_agent_works_in_its_directory_itself_where_there_is_nothing_to_clone(
    db: None, repository: Path, tmp_path: Path
) -> None:
    plain, empty, untracked = tmp_path / "plain", tmp_path / "empty", repository / "untracked"
    for place, why in ((plain, "is in no git"), (empty, "has no commit yet"), (untracked, "is not in the last commit")):
        place.mkdir()
        if place == empty:
            git(empty, "init", "--quiet")
        refusal = does("pool_create_agent", cwd=str(place), worktree=True)["error"]
        assert refusal["code"] == "WORKTREE_REFUSED" and why in refusal["message"]
        agent, warning = created(cwd=str(place))
        assert agent.write_paths == [] and warning.startswith(f"It works in {place} itself: ") and why in warning
        agent, warning = created(cwd=str(place), preset="trusted")
        assert agent.write_paths == [str(place)] and why in warning
        assert ("so you trust it" in warning) == (place != plain)
    created(agent_id="deep", preset="trusted", cwd=str(repository / "src"), worktree=False)
    answer = does("pool_create_agent", Caller("test", agent_id="deep"), agent_id="child")["data"]
    assert "does not lie below its parent's directory" in answer["warning"]
    assert not PoolWorktree.objects.exists() and git(repository, "branch", "--list", "nexus/*") == ""


def test_an_agent_is_refused_where_there_is_a_commit_that_git_does_not_clone(db: None, repository: Path) -> None:
    git(repository.parent, "clone", "--quiet", "--shared", str(repository), "shared")
    new: dict[str, Any] = {"agent_id": "smith", "preset": "trusted", "cwd": str(repository.parent / "shared")}
    error = does("pool_create_agent", **new)["error"]
    assert error["code"] == "WORKTREE_REFUSED" and "borrows objects" in error["message"]
    assert "`worktree: false`" in error["message"]
    assert does("pool_create_agent", **new, worktree=False)["ok"]


def test_an_agent_whose_directory_the_worker_clones_gets_no_second_clone(
    db: None, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "home" / "runners.toml").write_text(f'[clones."{repository}"]\ngit = "{repository}"\n')
    agent, _ = created(cwd=str(repository / "smith"), preset="trusted")
    assert agent.write_paths == [str(repository / "smith")] and not PoolWorktree.objects.exists()


def test_a_client_of_the_json_rpc_contract_creates_agents_in_the_directory_that_it_names(
    rpc: Wire, repository: Path, tmp_path: Path, configure: Callable[..., None]
) -> None:
    configure(control=True, home=tmp_path / "home")
    given: dict[str, Any] = {"cwd": str(repository), "preset": "trusted"}
    assert "worktree" not in rpc.call("create_agent", agent_id="theirs", **given)
    for worktree in (None, True):  # as `nexus rpc create` asks
        made = rpc.call("create_agent", agent_id=f"ours-{worktree}", worktree=worktree, **given)
        assert made["worktree"] == PoolWorktree.objects.get(agent__agent_id=made["agent_id"]).path
    rows = {row["agent_id"]: row for row in rpc.call("list_agents")["agents"]}
    assert (rows["theirs"]["cwd"], rows["theirs"]["write_paths"]) == (str(repository), [str(repository)])


def test_it_leaves_nothing_of_a_call_that_is_refused(db: None, repository: Path, tmp_path: Path) -> None:
    def refused(**arguments: Any) -> str:
        return str(does("pool_create_agent", worktree=True, **arguments)["error"]["code"])

    assert does("pool_create_agent", agent_id="taken", cwd=str(tmp_path))["ok"]
    git(tmp_path, "clone", "--quiet", "--shared", str(repository), "shared")
    shared = does("pool_create_agent", worktree=True, agent_id="smith", cwd=str(tmp_path / "shared"))["error"]
    assert shared["code"] == "WORKTREE_REFUSED" and "borrows objects from another repository" in shared["message"]
    assert refused(agent_id="taken", cwd=str(repository)) == "VALIDATION_ERROR"
    assert refused(agent_id="a/b", cwd=str(repository)) == "VALIDATION_ERROR"
    assert refused(agent_id="smith", cwd=str(repository), preset="yolo") == "NOT_PERMITTED"
    assert git(repository, "branch", "--list", "nexus/*") == ""
    assert git(repository, "worktree", "list").count("\n") == 0
    place = CoreSettings.current().home / FOLDER
    assert {made.name for made in place.iterdir()} <= {LOCKS}


@pytest.mark.parametrize("agent_id", [".helper", "a.lock", "ends."])
def test_it_finds_a_branch_for_every_name(db: None, repository: Path, agent_id: str) -> None:
    assert does("pool_create_agent", agent_id=agent_id, cwd=str(repository), worktree=True)["ok"]
    assert PoolWorktree.objects.get().branch.startswith("nexus/")


def test_it_gives_no_two_trees_one_branch(repository: Path, tmp_path: Path) -> None:
    origin = origin_of(str(repository))
    made = at_once([partial(trees.make, origin, str(tmp_path / f"tree{n}"), "twin") for n in range(4)])
    assert len({tree.branch for tree in made}) == 4
    assert all(git(Path(tree.path), "rev-parse", "HEAD") == made[0].base for tree in made)


def test_agents_whose_work_is_handed_in_at_once_all_hand_it_in(repository: Path, tmp_path: Path) -> None:
    made = [trees.make(origin_of(str(repository)), str(tmp_path / f"tree{n}"), "twin") for n in range(3)]
    for tree in made:
        Path(tree.path, Path(tree.path).name).touch()
    assert at_once([partial(trees.hand_in, tree, "Work") for tree in made]) == ["main"] * 3
    for tree in made:
        names = git(repository, "ls-tree", "--name-only", tree.branch).split()
        assert Path(tree.path).name in names and len(names) == 3, "each branch has the work of its own worktree"


def test_work_comes_through_a_tree_that_was_made_from_a_tree(repository: Path, tmp_path: Path) -> None:
    first = trees.make(origin_of(str(repository)), str(tmp_path / "first"), "twin")
    second = trees.make(first.as_origin, str(tmp_path / "second"), "twin")
    Path(second.path, "new.txt").touch()
    trees.keep(second, "Kept")
    Path(second.path, "newer.txt").touch()
    merge(second)
    with trees.removal(second, "Discarded", changes_too=False, lost_too=False):
        pass
    assert git(Path(first.path), "branch", "--list", "nexus/*") == "* nexus/twin"
    merge(first)
    assert (repository / "new.txt").exists() and (repository / "newer.txt").exists()


def test_a_repository_that_another_process_is_at_is_not_waited_for_for_ever(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "LOCK_SECONDS", 0)
    origin = origin_of(str(repository))
    with trees.alone(origin.common), pytest.raises(GitFailed, match="keeps its repository locked"):
        trees.make(origin, str(tmp_path / "tree"), "twin")
    held = os.open(repository / ".git", os.O_RDONLY)  # as an agent can, which reads there
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert trees.make(origin, str(tmp_path / "tree"), "twin").branch == "nexus/twin"
    finally:
        os.close(held)


async def test_a_git_that_takes_long_holds_up_nobody_else_who_does(
    committed: None, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person's diffs of a repository that answers slowly, and an agent's plan."""
    await in_thread(WRITERS, lambda: does("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True))
    free, begun = threading.Event(), threading.Semaphore(0)

    def stuck(tree: trees.Tree) -> trees.Survey:
        begun.release()
        assert free.wait(START_SECONDS)  # a bound against hanging, not a figure
        return trees.NOTHING

    monkeypatch.setattr(trees, "survey", stuck)
    looking = [
        asyncio.create_task(dispatch.arun(CONTROL, OPERATOR, "pool_worktree_diff", {"agent_id": "smith"}))
        for _ in range(3)
    ]
    try:
        for _ in looking:
            await asyncio.to_thread(begun.acquire)
        await asyncio.wait_for(in_thread(SLOW, int), START_SECONDS / 2)
    finally:
        free.set()
        assert all(done["ok"] for done in await asyncio.gather(*looking))


def test_it_runs_nothing_that_a_tree_or_its_origin_configures(db: None, repository: Path, tmp_path: Path) -> None:
    """Hooks, filters, merge drivers and monitors: without a sandbox, the neutral configuration alone holds there."""
    proof = tmp_path / "proof"
    script = f"touch {proof}; cat"
    programs = ("core.fsmonitor", "core.pager", "diff.external", "diff.evil.textconv", "diff.evil.command")
    filters = ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver")

    def plant(place: Path) -> None:
        for hook in ("post-checkout", "post-merge", "pre-commit", "reference-transaction", "post-index-change"):
            path = place / ".git" / "hooks" / hook
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"#!/bin/sh\n{script}\n")
            path.chmod(0o755)
        for name in (*programs, *filters):
            git(place, "config", name, script)
        git(place, "config", "filter.evil.required", "true")
        proof.unlink(missing_ok=True)

    (repository / ".gitattributes").write_text("*.txt filter=evil merge=evil diff=evil\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Attributes")
    plant(repository)
    assert does("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)["ok"]
    made = Path(PoolWorktree.objects.get().path)
    assert not proof.exists()
    plant(made)
    (made / "notes.txt").write_text("mine\n")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == ["notes.txt"]
    assert merged("smith").state == MergeState.MERGED
    assert (repository / "notes.txt").read_text() == "mine\n"
    (made / "notes.txt").write_text("kept\n")
    assert does("pool_worktree_keep", agent_id="smith")["ok"] and not proof.exists()
    (repository / "notes.txt").write_text("theirs\n")
    safe = ["-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false", "-c", "filter.evil.process="]
    safe += ["-c", "filter.evil.clean=", "-c", "filter.evil.required=false"]
    git(repository, *safe, "commit", "--quiet", "--all", "-m", "Theirs")
    proof.unlink(missing_ok=True)
    assert [each["file"] for each in merged("smith").conflicts] == ["notes.txt"]
    assert not proof.exists()
    subprocess.run(["git", "status"], cwd=made, capture_output=True, check=False)
    assert proof.exists(), "they do run where git is called as usual"


def test_it_bounds_what_git_takes(
    sandboxed: None, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "git"
    seconds = f"600.{secrets.randbelow(10**9)}"  # by which it is found
    program.write_text(f"#!/bin/sh\nsetsid sleep {seconds} & echo $! > child; wait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("nexus.control.runners.git.SECONDS", 1)
    place = str(repository)
    with pytest.raises(GitFailed, match="longer than 1 seconds"):
        Git(place, place, (), (place,)).run("status")
    assert (repository / "child").exists()
    assert seconds not in every_argument()


class Worktrees(Looked):
    """What a check of worktrees is given."""

    def tables(self) -> set[str]:
        return {"pool_worktrees"}

    def repair(self, sql: str) -> Callable[[], object]:
        return lambda: connection.cursor().execute(sql)


def test_it_lets_doctor_find_what_a_crash_left_and_what_nobody_decided(made: Path) -> None:
    home = CoreSettings.current().home
    (check,) = (each for each in CHECKS if each.name == "worktrees")

    def found() -> list[str]:
        return [finding.problem for finding in check.check(Worktrees(home))]

    assert found() == []
    (home / FOLDER / "half-made").mkdir()
    assert "no agent's worktree" in found()[0]
    (home / FOLDER / "half-made").rmdir()
    does("pool_destroy_agent", agent_id="smith")
    assert "is not settled" in found()[0]
    made.rename(made.parent / "moved").rename(made.parent.parent / "moved")
    (gone,) = check.check(Worktrees(home))
    assert "is gone" in gone.problem
    assert gone.mend is not None
    gone.mend()
    assert found() == []


def test_it_keeps_the_record_of_a_tree_that_is_there_from_retention(made: Path) -> None:
    from nexus.control.maintenance import RETENTION_RULES

    agents = next(rule for rule in RETENTION_RULES if rule.name == "ended_pool_agents")
    does("pool_destroy_agent", agent_id="smith")
    later = datetime(2100, 1, 1, tzinfo=UTC)
    assert not agents.rows(later).exists()
    assert does("pool_worktree_discard", agent_id="smith")["ok"]
    assert agents.rows(later).exists()


def test_a_worktree_follows_its_project_when_that_is_renamed(made: Path, repository: Path) -> None:
    dispatch.run(COORDINATION, OPERATOR, "workspace_resolve", {"project_root": str(repository)})

    def limit(root: Path, turns: int) -> None:
        about = {"scope": "project", "name": str(root), "measure": "turns", "period": "day", "limit": turns}
        assert dispatch.run(CONTROL, OPERATOR, "pool_set_budget", about)["ok"]

    limit(repository, 5)
    (made / "new.txt").write_text("new\n")
    renamed = repository.rename(repository.parent / "renamed")
    given = {"old_root": str(repository), "project_root": str(renamed)}
    assert dispatch.run(COORDINATION, OPERATOR, "workspace_move", given)["ok"]
    assert git(made, "log", "--oneline")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == ["new.txt"]
    assert merged("smith").state == MergeState.MERGED
    assert (renamed / "new.txt").read_text() == "new\n"
    limit(renamed, 6)
    [row] = does("pool_list_budgets")["data"]["budgets"]
    assert row["name"] == str(renamed)
