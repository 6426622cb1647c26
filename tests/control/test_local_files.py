"""Files that git does not have and agents need: copied into worktrees or linked there, as an operator approved."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from nexus.control.models import PoolAgent, PoolWorktree
from nexus.control.runners import processes, sandbox
from nexus.control.runners_file import Acp
from nexus.control.worktrees import local_files, trees
from tests.conftest import does as coordinates
from tests.control.test_lane import ended, queue
from tests.control.test_rehearsal import Play
from tests.control.test_worktrees import does, pool, repository
from tests.git import git
from tests.pages import shown

__all__ = ["pool", "repository"]

BOTH = '[worktrees]\ncopy = [".env", "certs"]\nsymlink = ["node_modules"]\n'


@pytest.fixture
def project(db: None, repository: Path) -> Path:
    """A repository with files that git does not have."""
    (repository / ".env").write_text("KEY=1\n")
    (repository / ".env").chmod(0o600)
    for path in ("certs/own/key.pem", "node_modules/left-pad/index.js"):
        (repository / path).parent.mkdir(parents=True)
        (repository / path).write_text(f"{path}\n")
    return repository


def approve(project: Path, text: str) -> None:
    (project / "nexus.toml").write_text(text)
    where = {"project_root": str(project)}
    digest = coordinates("checks_list", **where)["data"]["digest"]
    assert coordinates("checks_approve", **where, digest=digest)["ok"]


def create(project: Path, agent_id: str = "smith", **more: Any) -> tuple[Path, str]:
    """The worktree of a new agent, and what the answer warns of."""
    made = does("pool_create_agent", agent_id=agent_id, cwd=str(project), worktree=True, **more)
    assert made["ok"], made
    return Path(PoolWorktree.objects.get(agent__agent_id=agent_id).path), made["data"].get("warning", "")


def lacks(project: Path, text: str) -> str:
    approve(project, text)
    return create(project)[1]


def in_sandbox(command: str) -> subprocess.CompletedProcess[str]:
    """What a command says that smith runs in its sandbox."""
    agent = PoolAgent.objects.get(agent_id="smith")
    line = processes.confined(["sh", "-c", command], Acp(kind="acp", command=["agent"]), agent, cwd=agent.cwd)
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_a_worktree_gets_copies_and_links_that_are_no_work(project: Path) -> None:
    approve(project, BOTH)

    made, warning = create(project)

    assert warning == ""
    assert ((made / ".env").read_text(), (made / ".env").stat().st_mode & 0o777) == ("KEY=1\n", 0o600)
    assert (made / "certs" / "own" / "key.pem").read_text() == "certs/own/key.pem\n"
    assert (made / "node_modules").readlink() == project / "node_modules"
    assert git(made, "status", "--porcelain") == "", "although no .gitignore names them"
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == []
    (made / "notes.txt").write_text("two\n")
    assert does("pool_worktree_keep", agent_id="smith")["ok"]
    assert git(project, "show", "--format=", "--name-only", "nexus/smith") == "notes.txt"


@pytest.mark.usefixtures("sandboxed")
def test_an_agent_reads_its_copy_and_cannot_write_where_a_link_leads(project: Path) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    approve(project, BOTH)
    create(project)
    said = in_sandbox("cat .env node_modules/left-pad/index.js; echo 2 > .env; echo 3 > node_modules/left-pad/index.js")
    assert said.stdout == "KEY=1\nnode_modules/left-pad/index.js\n"
    assert "Read-only file system" in said.stderr
    assert in_sandbox(f"cat .env; cat {project}/.env").stdout == "2\n", "of the project it has what is linked alone"
    assert (project / ".env").read_text() == "KEY=1\n"
    (project / "node_modules").rename(project / "old")
    (project / "node_modules").symlink_to("/etc")
    assert in_sandbox("ls node_modules/").stdout == "", "what is put there later is not shown"


def test_a_rehearsal_reads_its_copy_and_cannot_write_where_a_link_leads(project: Path) -> None:
    approve(project, BOTH)
    create(project)
    calls = [
        "{ operation = 'tools.read_file', arguments = { path = '.env' } }",
        "{ operation = 'tools.write_file', arguments = { path = 'node_modules/new.js', content = '' } }",
    ]
    play = Play(f"[{{ call = [{', '.join(calls)}] }}]")
    play.agent = PoolAgent.objects.get()

    ended = asyncio.run(play.hears("Go"))

    assert "KEY=1\n" in play.said
    assert "tools.write_file was refused: node_modules/new.js may not be written" in (ended.answer or "")


def test_what_nobody_approved_is_not_brought_and_the_answer_and_the_page_say_so(project: Path, browser: Client) -> None:
    (project / "nexus.toml").write_text(BOTH)

    made, warning = create(project)

    assert not (made / ".env").exists() and not (made / "node_modules").is_symlink()
    assert "files in nexus.toml are not approved (.env, certs, node_modules)" in warning
    assert f"nexus checks approve --project {project}" in warning
    page = shown(browser.get(reverse("admin:pool_agent", args=[PoolAgent.objects.get().pk])))
    assert "local files in nexus.toml are not approved" in page
    approve(project, BOTH)
    assert (create(project, "second")[0] / ".env").exists()
    (project / "nexus.toml").write_text(BOTH.replace("certs", "other"))
    assert "are others than" in create(project, "third")[1]


def test_a_list_of_bad_paths_is_refused_whole(project: Path) -> None:
    assert "nexus.toml is not TOML" in refused(project, 'copy = [".env')
    for path in ("/etc/passwd", "../other", "a/../../b", ".", "", ".git/config", "a/.GIT/hooks", "git~1", "a\\nb",
                 ".g\\u200cit", "a\\u2028b", "x" * 501):  # fmt: skip
        for way in ("copy", "symlink"):
            assert "must be a printable path within the project" in refused(project, f'{way} = ["{path}"]'), path
    assert "must be a printable path within the project" in refused(project, "copy = [1]")
    assert "at most 50 paths" in refused(project, f"copy = {['a'] * 10_000}")
    assert "at most 50 paths" in refused(project, f"copy = {['a'] * 30}\nsymlink = {['b'] * 30}")
    assert "at most 50 paths" in refused(project, 'copy = ".env"')
    assert "names a path twice" in refused(project, 'copy = [".env"]\nsymlink = ["./.env/"]')
    assert "is malformed" in refused(project, 'link = [".env"]')


def refused(project: Path, lines: str) -> str:
    """Why such a list counts for nothing."""
    PoolWorktree.objects.all().delete()
    PoolAgent.objects.all().delete()
    (project / "nexus.toml").write_text(f"[worktrees]\n{lines}\n")
    problem: str = coordinates("checks_list", project_root=str(project))["data"]["problem"]
    return problem


def nothing(project: Path) -> None: ...


def fifo(project: Path) -> None:
    os.mkfifo(project / "odd")


def link(project: Path) -> None:
    (project / "odd").symlink_to("/etc/passwd")


def tracked(project: Path) -> None:
    (project / "odd").mkdir()
    (project / "odd" / "file").touch()
    git(project, "add", "odd")
    git(project, "commit", "--quiet", "-m", "Odd")


def brought_back(project: Path) -> None:
    (project / "odd").touch()
    (project / ".gitignore").write_text("!odd\n")
    git(project, "add", ".gitignore")
    git(project, "commit", "--quiet", "-m", "Odd")


def deep(project: Path) -> None:
    (project / "odd" / "deep" / ("d/" * 70)).mkdir(parents=True)


def many(project: Path) -> None:
    (project / "odd").mkdir()
    for number in range(200):
        (project / "odd" / str(number)).touch()


def large(project: Path) -> None:
    (project / "odd").mkdir()
    for name in "ab":
        (project / "odd" / name).write_bytes(b"x" * 600)


def large_file(project: Path) -> None:
    with (project / "odd").open("wb") as sparse:
        sparse.truncate(5 * 1024**3)


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (nothing, "it is not there"),
    "a FIFO": (fifo, "neither a file nor a directory"),
    "a link": (link, "neither a file nor a directory"),
    "tracked below it": (tracked, "git tracks it"),
    "brought back by a .gitignore": (brought_back, "a .gitignore says"),
    "too deep": (deep, "too deep"),
    "too many entries": (many, "over 100 entries"),
    "too many bytes": (large, "bytes; link it instead"),
    "a file of 5 GB": (large_file, "bytes; link it instead"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_cannot_be_copied_is_left_out_whole_and_said(
    project: Path, odd: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_files, "MOST_BYTES", 1_000)
    monkeypatch.setattr(local_files, "MOST_ENTRIES", 100)
    make, why = ODD[odd]
    make(project)
    approve(project, '[worktrees]\ncopy = ["odd", ".env"]')

    made, warning = create(project)

    assert warning.startswith(f"It lacks local files of {project}: 'odd' (")
    assert why in warning
    assert (made / ".env").exists(), "the others are brought"
    assert not os.path.lexists(made / "odd") or odd == "tracked below it"


@pytest.mark.parametrize("odd", ["missing", "a FIFO", "a link", "tracked below it", "brought back by a .gitignore"])
def test_what_cannot_be_linked_is_left_out_and_said(project: Path, odd: str) -> None:
    make, why = ODD[odd]
    make(project)
    assert why in lacks(project, '[worktrees]\nsymlink = ["odd", "node_modules"]')
    assert (Path(PoolWorktree.objects.get().path) / "node_modules").is_symlink()


def test_nothing_is_read_or_written_through_a_link_on_the_way(project: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "key").write_text("key")
    (project / "out").symlink_to(tmp_path / "outside")  # which git does not have
    (project / "kept").symlink_to(tmp_path / "outside")  # which it has
    git(project, "add", "kept")
    git(project, "commit", "--quiet", "-m", "Kept")
    (project / "kept").unlink()
    (project / "kept").mkdir()
    (project / "kept" / "new").touch()

    warning = lacks(project, '[worktrees]\ncopy = ["out/key", "kept/new"]')

    assert "'out/key' (a link or a file is in its way)" in warning
    assert "'kept/new' (git tracks it" in warning
    assert [each.name for each in (tmp_path / "outside").iterdir()] == ["key"]


def test_the_hubs_own_files_and_repositories_are_not_brought(
    project: Path, configure: Callable[..., None], tmp_path: Path
) -> None:
    home = project / "var" / "home"
    home.mkdir(parents=True)
    (project / "certs" / ".git").mkdir()
    (project / "certs" / ".git" / "config").touch()
    configure(home=home)

    warning = lacks(project, '[worktrees]\ncopy = ["var", "certs"]\nsymlink = ["var/home"]')

    assert "'var' (it has the hub's own files), 'var/home' (it has the hub's own files)" in warning
    made = Path(PoolWorktree.objects.get().path)
    assert [each.name for each in (made / "certs").iterdir()] == ["own"]


def test_names_that_mean_something_to_git_are_ignored_to_the_letter(project: Path) -> None:
    names = ["a b*", "#x", "!y", "z ", "[q]", "\\w", ":(top)v"]
    for name in names:
        (project / name).write_text(name)
    assert lacks(project, f"[worktrees]\ncopy = {[*names]!r}".replace("\\\\", "\\")) == ""
    made = Path(PoolWorktree.objects.get().path)
    assert {name for name in names if (made / name).exists()} == set(names)
    assert git(made, "status", "--porcelain") == ""


def test_work_that_has_local_files_in_it_is_not_taken(project: Path) -> None:
    approve(project, BOTH)
    made, _ = create(project)
    git(made, "add", "--force", ".env")
    git(made, "commit", "--quiet", "-m", "With a secret")
    git(made, "rm", "--quiet", "--cached", ".env")
    git(made, "commit", "--quiet", "-m", "Without it")
    for operation in ("diff", "keep", "queue"):
        for _ in range(2):
            error = does(f"pool_worktree_{operation}", agent_id="smith")["error"]
            assert error["code"] == "WORKTREE_REFUSED" and "has local files ('.env'" in error["message"], operation
    assert git(project, "log", "--format=%s") == "Begin"
    git(made, "reset", "--quiet", "--hard", "HEAD~2")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == []


def test_work_that_merges_what_the_project_tracks_by_now_is_taken(project: Path) -> None:
    approve(project, BOTH)
    made, _ = create(project)
    git(project, "add", ".env")
    git(project, "commit", "--quiet", "-m", "Track it")
    (made / ".env").unlink()
    git(made, "fetch", "--quiet", str(project), "HEAD")
    git(made, "merge", "--quiet", "FETCH_HEAD")
    (made / "notes.txt").write_text("two\n")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == ["notes.txt"]


def test_copies_are_lost_only_if_the_agent_changed_them(project: Path) -> None:
    (project / "certs" / "large").write_bytes(b"x" * trees.LARGE_BYTES)
    approve(project, BOTH)
    create(project)
    made, _ = create(project, "second")
    (made / "certs" / "large").write_bytes(b"y" * trees.LARGE_BYTES)
    for agent in ("smith", "second"):
        does("pool_destroy_agent", agent_id=agent)
    assert does("pool_worktree_discard", agent_id="smith")["ok"]
    details = does("pool_worktree_discard", agent_id="second")["error"]["details"]
    assert (details["field"], details["names"]) == ("lost_too", ["certs/, which is ignored"])
    assert does("pool_worktree_discard", agent_id="second", lost_too=True)["ok"]
    assert (project / "node_modules" / "left-pad" / "index.js").exists()


def test_the_worktree_of_an_agent_below_has_those_of_the_project(project: Path) -> None:
    approve(project, BOTH)
    above, _ = create(project, preset="trusted")
    (above / ".env").write_text("KEY=mine\n")
    below, warning = create(above, "below", parent_agent_id="smith")
    assert warning == ""
    assert (below / ".env").read_text() == "KEY=1\n"
    assert (below / "node_modules").readlink() == project / "node_modules"


@pytest.mark.usefixtures("sandboxed")
def test_checks_of_the_merge_lane_have_them(project: Path) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    approve(project, f"{BOTH}[checks]\nfit = 'cat .env node_modules/*/*; touch node_modules/new; test ! -e new.txt'\n")
    made, _ = create(project)
    (made / "new.txt").touch()
    (project / "certs").rename(project / "gone")

    entry = ended(queue("smith"))

    assert entry.cause == "checks"
    assert "KEY=1\nnode_modules/left-pad/index.js\n" in entry.why
    assert "Read-only file system" in entry.why
    assert f"exit code 1. It lacks local files of {project}: 'certs' (it is not there)." in entry.why


def test_a_link_follows_a_project_that_is_renamed(project: Path) -> None:
    approve(project, BOTH)
    made, _ = create(project)
    renamed = project.rename(project.parent / "renamed")
    assert coordinates("workspace_move", old_root=str(project), project_root=str(renamed))["ok"]
    assert (made / "node_modules").readlink() == renamed / "node_modules"
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == []
