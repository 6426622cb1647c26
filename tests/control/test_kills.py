"""A hub that is killed at any step of what it does with a worktree: the next one finishes or undoes that."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections

from nexus.control import maintenance
from nexus.control.models import MergeState, PoolWorktree, WorktreeMerge, WorktreeState
from nexus.control.worktrees import trees
from nexus.control.worktrees.lane import LANE_WORK
from nexus.core.background_work import work_once
from nexus.core.config import CoreSettings
from tests.control.test_lane import approve
from tests.control.test_worktrees import does, pool, repository, told
from tests.git import git

__all__ = ["pool", "repository"]

SECONDS = 60  # a bound against hanging, not a figure
# Each git is two steps, its beginning and its end. The hub is killed together with the git that it runs, as its sandbox
# or guardian does that; the git that moves a person's files goes on.
GIT = """#!/bin/sh
step() {{
  echo >> {folder}/steps
  [ $(wc -l < {folder}/steps) -ge $(cat {folder}/at) ] || return
  kill -9 $(cat {folder}/hub)
  case "$*" in *--ff-only*) ;; *) kill -9 0 ;; esac
}}
step "$@"
{git} "$@"
code=$?
step "$@"
exit $code
"""


class Hub:
    """A hub of one call, that is killed at a step: a git, a change of a directory, or a write into the store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "git").write_text(GIT.format(folder=folder, git=shutil.which("git")))
        (folder / "git").chmod(0o755)

    def dies(self, at: int, call: Callable[[], object]) -> bool:
        """Make a call in a hub that dies at a step; return whether it came so far."""
        (self.folder / "steps").write_bytes(b"")
        (self.folder / "at").write_text(str(at))
        connections.close_all()
        child = os.fork()
        if child == 0:
            try:
                self._run(call)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, -signal.SIGKILL), code
        return code != 0

    def _run(self, call: Callable[[], object]) -> None:
        signal.alarm(SECONDS)
        (self.folder / "hub").write_text(str(os.getpid()))
        os.environ["PATH"] = f"{self.folder}:{os.environ['PATH']}"
        sys.addaudithook(self._look)
        with connection.execute_wrapper(self._write):
            call()
        os._exit(0)

    def _step(self) -> None:
        with (self.folder / "steps").open("ab") as steps:
            steps.write(b"\n")
            steps.flush()
            if steps.tell() >= int((self.folder / "at").read_text()):
                os.kill(os.getpid(), signal.SIGKILL)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            is_step = "git" not in str(arguments[1])
        else:
            is_step = event in ("os.rename", "os.mkdir", "os.rmdir") and "nexus-git-" not in str(arguments[0])
        if is_step:
            self._step()

    def _write(self, execute: Callable[..., object], sql: str, *given: Any) -> object:
        if not sql.startswith(("SELECT", "PRAGMA", "SAVEPOINT", "RELEASE")):
            self._step()
        return execute(sql, *given)


class Work:
    """An agent's worktree, with a line of each kind that can be lost."""

    def __init__(self, repository: Path, number: int) -> None:
        self.repository, self.name = repository, f"smith{number}"
        self.agent: dict[str, Any] = {"agent_id": self.name}
        self.path = Path()

    def create(self) -> dict[str, Any]:
        return does("pool_create_agent", **self.agent, cwd=str(self.repository), worktree=True)

    @property
    def row(self) -> PoolWorktree:
        return PoolWorktree.objects.get(agent__agent_id=self.name)

    def write(self) -> None:
        self.path = Path(self.row.path)
        for kind in ("stashed", "committed", "uncommitted"):
            (self.path / f"{self.name}.{kind}").write_text(f"{kind} by {self.name}\n")
            if kind != "uncommitted":
                git(self.path, "add", ".")
            if kind == "stashed":
                git(self.path, "stash", "--quiet")
            if kind == "committed":
                git(self.path, "commit", "--quiet", "-m", f"Mine of {self.name}")

    def check_nothing_is_lost(self) -> None:
        """Each line is in the worktree, or a ref of its origin has it; the people's files are whole."""
        found = _objects(self.repository)
        if self.row.state != WorktreeState.DISCARDED:
            found |= _objects(self.path)
            if (file := self.path / f"{self.name}.uncommitted").exists():
                found.add(git(self.path, "hash-object", file.name))
        for kind in ("stashed", "committed", "uncommitted"):
            line = self.repository.parent / "line"
            line.write_text(f"{kind} by {self.name}\n")
            assert git(line.parent, "hash-object", line.name) in found, kind

    def merges(self) -> int:
        subject = f"Merge nexus/{self.name}, the work of {self.name}"
        return git(self.repository, "log", "--first-parent", "--format=%s").split("\n").count(subject)

    def check_merged_once(self) -> None:
        assert self.merges() == 1
        for kind in ("committed", "uncommitted"):
            assert (self.repository / f"{self.name}.{kind}").read_text() == f"{kind} by {self.name}\n"
        assert self.row.merged_at is not None
        assert git(self.path, "status", "--porcelain") == ""


def _objects(repository: Path) -> set[str]:
    said = git(repository, "rev-list", "--objects", "--all", "HEAD")
    return {line.split()[0] for line in said.split("\n")}


def refused(answer: dict[str, Any]) -> str:
    return "" if answer["ok"] else str(answer["error"]["message"])


class Look:
    """A call that is cut short: what comes before it, and what the next hub makes of it."""

    def prepare(self, work: Work) -> None:
        pass

    def call(self, work: Work) -> dict[str, Any]:
        return does("pool_worktree_diff", **work.agent)

    def finish(self, work: Work) -> None:
        files = self.call(work)["data"]["files"]
        assert files == [f"{work.name}.committed", f"{work.name}.uncommitted"]
        assert git(work.path, "status", "--porcelain") == f"?? {work.name}.uncommitted"


class Keep(Look):
    def call(self, work: Work) -> dict[str, Any]:
        return does("pool_worktree_keep", **work.agent)

    def finish(self, work: Work) -> None:
        assert self.call(work)["ok"]
        assert work.row.state == WorktreeState.KEPT
        branch = f"nexus/{work.name}"
        assert git(work.repository, "show", f"{branch}:{work.name}.uncommitted") == f"uncommitted by {work.name}"
        assert git(work.repository, "rev-parse", branch) == git(work.path, "rev-parse", "HEAD")


class Queue(Look):
    def call(self, work: Work) -> dict[str, Any]:
        return does("pool_worktree_queue", **work.agent)

    def finish(self, work: Work) -> None:
        said = refused(self.call(work))
        assert said == "" or "it waits in the merge queue already" in said
        work_once(LANE_WORK)
        assert WorktreeMerge.objects.get(worktree=work.row).state == MergeState.MERGED
        work.check_merged_once()


class Lane(Queue):
    def prepare(self, work: Work) -> None:
        assert super().call(work)["ok"]

    def call(self, work: Work) -> dict[str, Any]:
        work_once(LANE_WORK)
        return {"ok": True}

    def finish(self, work: Work) -> None:
        self.call(work)
        entry = WorktreeMerge.objects.get(worktree=work.row)
        assert (entry.state, entry.result) == (MergeState.MERGED, git(work.repository, "rev-parse", "HEAD"))
        work.check_merged_once()
        assert not [*Path(CoreSettings.current().home, trees.SCRATCH).glob("*")]


class Discard(Look):
    def prepare(self, work: Work) -> None:
        assert does("pool_destroy_agent", **work.agent)["ok"]

    def call(self, work: Work) -> dict[str, Any]:
        return does("pool_worktree_discard", **work.agent, changes_too=True)

    def finish(self, work: Work) -> None:
        maintenance.clear()
        if work.row.state != WorktreeState.DISCARDED:
            assert self.call(work)["ok"]
        assert not work.path.exists()
        refs = git(work.repository, "for-each-ref", "--format=%(refname)").split()
        assert [ref for ref in refs if work.name in ref and not ref.startswith(trees.DISCARDED)] == []
        kept = f"{trees.DISCARDED}/{work.path.name}"
        assert git(work.repository, "show", f"{kept}/work:{work.name}.uncommitted") == f"uncommitted by {work.name}"
        [stash] = git(work.repository, "for-each-ref", "--format=%(refname)", f"{kept}/nexus/stash").split("\n")
        assert git(work.repository, "show", f"{stash}:{work.name}.stashed") == f"stashed by {work.name}"


VERBS: dict[str, Look] = {
    "look": Look(),
    "keep": Keep(),
    "queue": Queue(),
    "discard": Discard(),
}


@pytest.fixture
def hub(committed: None, tmp_path: Path) -> Iterator[Hub]:
    yield Hub(tmp_path / "bin")


def walk(hub: Hub, repository: Path, verb: Look, stride: int) -> None:
    """Kill a hub at each step of a verb, of each worktree at a later one."""
    number, at, dies = 0, 1, True
    while dies:
        work = Work(repository, number)
        assert work.create()["ok"]
        work.write()
        verb.prepare(work)
        dies = hub.dies(at, lambda work=work: verb.call(work))  # type: ignore[misc]
        work.check_nothing_is_lost()
        assert work.merges() <= 1
        verb.finish(work)
        work.check_nothing_is_lost()
        assert git(repository, "status", "--porcelain").replace("?? nexus.toml", "") == ""
        number, at = number + 1, at + stride
    git(repository, "fsck", "--strict", "--no-dangling")
    merged = told("worktree.merged")
    assert len(merged) == sum(row.merged_at is not None for row in PoolWorktree.objects.all())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_the_next_hub_finishes_or_undoes(hub: Hub, repository: Path, verb: str, stride: int) -> None:
    walk(hub, repository, VERBS[verb], stride)


@pytest.mark.usefixtures("runs_sandbox")
@pytest.mark.parametrize("stride", [29, pytest.param(1, marks=pytest.mark.long)], ids=["some", "all"])
def test_the_next_hub_finishes_the_lane_with_a_check_run_anew(hub: Hub, repository: Path, stride: int) -> None:
    approve(repository, fit="true")
    walk(hub, repository, Lane(), stride)
