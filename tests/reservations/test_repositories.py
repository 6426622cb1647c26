"""The guard in the repositories that people have: real git, in each of the layouts that it knows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nexus.core.operations.errors import NexusError
from nexus.reservations.guard import hooks
from tests.conftest import Furnish
from tests.hooks.harness import Harness
from tests.reservations.git import Held, Repo

pytestmark = [pytest.mark.sqlite, pytest.mark.usefixtures("runs_git")]  # rows are put into the store's file
LOCAL = ("-c", "protocol.file.allow=always")
AUTHOR = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def held(tmp_path: Path, furnish: Furnish) -> Held:
    return Held(furnish(tmp_path / "home"))


@pytest.fixture
def repo(tmp_path: Path, held: Held) -> Repo:
    """A guarded repository whose file `a.py` ann holds."""
    made = Repo.make(tmp_path / "shop")
    made.write(*["long.py"] * 30)
    made.ok("add", ".")
    made.ok("commit", "-qm", "long")
    held.guard(made)
    return made


def edit(repo: Repo, path: str, line: int) -> None:
    """Change one line of a file."""
    lines = (repo.top / path).read_text().splitlines()
    lines[line] = f"changed in {repo.top}, {line}"
    (repo.top / path).write_text("\n".join(lines) + "\n")


def fails(repo: Repo, *arguments: str, file: str = "a.py", **environ: str) -> str:
    """What the guard says of a command of git's that makes no commit."""
    before = repo.head
    done = repo.git(*arguments, **AUTHOR, **environ)
    assert done.returncode, done.stdout + done.stderr
    assert f'  {file}: held by "ann"' in done.stderr, done.stderr
    assert repo.head == before
    return done.stderr


def passes(repo: Repo, *arguments: str, **environ: str) -> None:
    done = repo.git(*arguments, **AUTHOR, **environ)
    assert done.returncode == 0, done.stderr
    assert "[nexus]" not in done.stderr


# What makes a commit


def test_it_refuses_a_merge_of_what_both_sides_changed_alone(repo: Repo, held: Held) -> None:
    ben = repo.of("ben")
    ben.ok("checkout", "-qb", "other")
    edit(ben, "long.py", 0)
    ben.change("a.py")
    ben.ok("commit", "-qam", "other")
    ben.ok("checkout", "-q", "main")
    ben.change("src/b.py")
    ben.ok("commit", "-qm", "main")
    held.reserve("ann", repo.top, "a.py", "long.py")
    passes(ben, "merge", "other", "-m", "merged")  # as one side has it
    ben.ok("reset", "-q", "--hard", "HEAD~1")
    held.release("ann")
    edit(ben, "long.py", 29)
    ben.ok("commit", "-qam", "both")
    held.reserve("ann", repo.top, "long.py")
    fails(ben, "merge", "other", "-m", "merged", file="long.py")
    passes(ben, "merge", "--abort")


def test_it_refuses_a_patch_that_git_am_applies(repo: Repo, held: Held, tmp_path: Path) -> None:
    ben = repo.of("ben")
    ben.change("a.py")
    ben.ok("commit", "-qm", "a patch")
    ben.ok("format-patch", "-q", "-1", "-o", str(tmp_path / "patches"))
    ben.ok("reset", "-q", "--hard", "HEAD~1")
    held.reserve("ann", repo.top, "a.py")
    [patch] = (tmp_path / "patches").iterdir()
    fails(ben, "am", str(patch))
    ben.ok("am", "--abort")
    held.release("ann")
    passes(ben, "am", str(patch))


def test_it_finds_no_fault_in_an_amended_commit_that_was_made_before(repo: Repo, held: Held) -> None:
    ben = repo.of("ben")
    ben.change("a.py")
    ben.ok("commit", "-qm", "before ann came")
    held.reserve("ann", repo.top, "a.py", refused="[]")
    passes(ben, "commit", "--amend", "-m", "in better words")
    ben.change("src/b.py")
    passes(ben, "commit", "--amend", "--no-edit")
    ben.change("a.py")
    assert "made past the guard" in ben.git("commit", "--amend", "--no-edit", "--no-verify").stderr


def test_it_leaves_a_stash_alone_and_finds_what_comes_of_it(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "a.py")
    ben = repo.of("ben")
    ben.write("a.py")
    passes(ben, "stash")
    passes(ben, "stash", "pop")
    fails(ben, "commit", "-qam", "from the stash")


@pytest.mark.parametrize(
    "configured",
    [
        {"diff.renames": "copies", "status.renames": "copies"},
        {"core.quotePath": "true", "diff.noprefix": "true", "diff.mnemonicPrefix": "true"},
        {"diff.orderFile": "/dev/null", "diff.relative": "true", "log.diffMerges": "off"},
        {"color.ui": "always", "core.pager": "false", "log.showSignature": "true", "diff.external": "false"},
        {"core.fsmonitor": "false", "core.untrackedCache": "true", "index.version": "4"},
    ],
    ids=lambda given: next(iter(given)),
)
def test_it_reads_git_whatever_the_operator_configured(repo: Repo, held: Held, configured: dict[str, str]) -> None:
    for name, value in configured.items():
        repo.ok("config", name, value)
    held.reserve("ann", repo.top, "/new/ü.py")
    ben = repo.of("ben")
    (repo.top / "new").mkdir()
    ben.ok("mv", "long.py", "new/ü.py")
    fails(ben, "commit", "-qm", "moved", file="new/ü.py")


# Where the repository is


def test_it_checks_the_repository_that_git_names_by_its_environment(repo: Repo, held: Held, tmp_path: Path) -> None:
    held.reserve("ann", repo.top, "a.py")
    repo.write("a.py")
    outside = repo.of("ben", tmp_path)
    for given in (
        ("-C", "shop", "commit", "-qam", "x"),
        ("--git-dir=shop/.git", "--work-tree=shop", "commit", "-qam", "x"),
    ):
        done = outside.git(*given)
        assert done.returncode == 1 and '  a.py: held by "ann"' in done.stderr
    named = {"GIT_DIR": str(repo.top / ".git"), "GIT_WORK_TREE": str(repo.top)}
    assert '  a.py: held by "ann"' in outside.git("commit", "-qam", "x", **named).stderr


@pytest.mark.parametrize("configured", [True, False], ids=["core.worktree", "environment"])
def test_it_guards_files_whose_git_directory_is_elsewhere(held: Held, tmp_path: Path, configured: bool) -> None:
    """As people keep the files of their home."""
    Repo(tmp_path).ok("init", "-q", "--bare", "-b", "main", "dots.git")
    home = tmp_path / "files"
    home.mkdir()
    named = {"GIT_DIR": str(tmp_path / "dots.git")} | ({} if configured else {"GIT_WORK_TREE": str(home)})
    repo = Repo(home, NEXUS_AGENT_ID="ben", **named)
    if configured:
        repo.ok("config", "core.bare", "false")
        repo.ok("config", "core.worktree", str(home))
    repo.change("a.py")
    repo.ok("commit", "-qm", "first", **AUTHOR)
    hooks.install(str(tmp_path / "dots.git"), str(held.file), "open", f"--home {held.home}")
    repo.ok("checkout", "-qb", "of-ann")
    repo.change("a.py", "long.py")
    repo.ok("commit", "-qm", "by ann", **AUTHOR)
    repo.ok("checkout", "-q", "main")
    repo.change("long.py")
    repo.ok("commit", "-qm", "by ben", **AUTHOR)
    held.reserve("ann", home, "a.py")
    repo.git("merge", "of-ann", **AUTHOR)  # of long.py, both
    repo.change("long.py")
    passes(repo, "commit", "-qm", "merged")
    repo.change("a.py")
    fails(repo, "commit", "-qm", "x")
    if configured:
        repo.ok("worktree", "add", "-q", "-b", "third", str(tmp_path / "third"))
        third = Repo(tmp_path / "third", NEXUS_AGENT_ID="ben")
        third.change("a.py")
        fails(third, "commit", "-qm", "x")


@pytest.mark.parametrize("how", ["--separate-git-dir", "--object-format", "bare with worktrees", "a link"])
def test_it_guards_each_layout_of_a_repository(held: Held, tmp_path: Path, how: str) -> None:
    top = tmp_path / "shop"
    outside = Repo(tmp_path)
    if how == "bare with worktrees":
        first = Repo.make(tmp_path / "first")
        outside.ok("clone", "-q", "--bare", str(first.top), "shop/.bare")
        (top / ".git").write_bytes(b"gitdir: ./.bare\r\n")
        outside.ok("-C", "shop", "worktree", "add", "-q", "main")
        outside.ok("-C", "shop", "worktree", "add", "-q", "-b", "second", "second")
        repo, second = Repo(top / "main", NEXUS_AGENT_ID="ben"), top / "second"
    else:
        option = {"--separate-git-dir": f"{how}={tmp_path}/git", "--object-format": f"{how}=sha256"}.get(how, "-q")
        outside.ok("init", "-q", "-b", "main", option, "shop")
        if how == "a link":
            (top / ".git").rename(tmp_path / "git")
            (top / ".git").symlink_to(tmp_path / "git")
        repo, second = Repo(top, NEXUS_AGENT_ID="ben"), tmp_path / "second"
        repo.change("a.py")
        repo.ok("commit", "-qm", "first", **AUTHOR)
        repo.ok("worktree", "add", "-q", "-b", "second", str(second))
    held.guard(repo)
    held.reserve("ann", repo.top, "a.py")
    repo.change("a.py")
    fails(repo, "commit", "-qm", "x")
    other = repo.of("ben", second)
    other.change("a.py")
    fails(other, "commit", "-qm", "x")
    outside.ok("init", "-q", "--bare", *(["--object-format=sha256"] if "format" in how else []), "remote.git")
    repo.ok("commit", "-qnm", "x", **AUTHOR)
    done = repo.git("push", str(tmp_path / "remote.git"), "HEAD:main")
    assert done.returncode == 1 and '  a.py: held by "ann"' in done.stderr


@pytest.mark.parametrize(
    "cut", [["--depth=1"], ["--filter=blob:none"], ["--filter=tree:0"], ["--sparse", "--filter=blob:none"]], ids=str
)
def test_it_guards_a_clone_that_lacks_a_part(repo: Repo, held: Held, tmp_path: Path, cut: list[str]) -> None:
    repo.ok("config", "uploadpack.allowFilter", "true")
    repo.change("src/b.py")
    repo.ok("commit", "-qm", "more")
    Repo(tmp_path).ok("clone", "-q", *cut, f"file://{repo.top}", "cut")
    cut_repo = Repo(tmp_path / "cut", NEXUS_AGENT_ID="ben")
    held.guard(cut_repo)
    held.reserve("ann", cut_repo.top, "a.py", "src/b.py", refused="[]")
    repo.top.rename(tmp_path / "unreachable")
    cut_repo.change("a.py")
    fails(cut_repo, "commit", "-qm", "x")
    cut_repo.ok("reset", "-q", "--hard")
    cut_repo.change("c.py")
    passes(cut_repo, "commit", "-qm", "mine")
    passes(cut_repo, "commit", "-q", "--amend", "-m", "in better words")
    Repo(tmp_path).ok("init", "-q", "--bare", "remote.git")
    done = cut_repo.git("push", str(tmp_path / "remote.git"), "HEAD:main")
    assert "[nexus]" not in done.stderr


def test_it_guards_the_submodules_of_every_work_tree(repo: Repo, held: Held, tmp_path: Path) -> None:
    whole = Repo.make(tmp_path / "whole")
    whole.ok(*LOCAL, "submodule", "--quiet", "add", str(repo.top), "lib/part")
    whole.ok("commit", "-qm", "with a part")
    whole.ok("worktree", "add", "-q", "-b", "second", str(tmp_path / "second"))
    second = whole.of("ben", tmp_path / "second")
    second.ok(*LOCAL, "submodule", "--quiet", "update", "--init")
    held.guard(whole)
    held.reserve("ann", whole.top, "lib/part/a.py")
    parts = [whole.of("ben", tree / "lib" / "part") for tree in (whole.top, second.top)]
    parts[0].ok("worktree", "add", "-q", "-b", "third", str(tmp_path / "third"))
    for part in (*parts, whole.of("ben", tmp_path / "third")):
        part.change("a.py")
        fails(part, "commit", "-qm", "x")
    held.release("ann")
    held.reserve("ann", second.top / "lib" / "part", "a.py")
    fails(parts[0], "commit", "-qm", "x")
    hooks.uninstall(str(whole.top))
    parts[1].ok("commit", "-qm", "x", **AUTHOR)


def test_it_names_submodules_and_work_trees_that_it_leaves_out(repo: Repo, held: Held, tmp_path: Path) -> None:
    whole = Repo.make(tmp_path / "whole")
    whole.ok(*LOCAL, "submodule", "--quiet", "add", str(repo.top), "part")
    Repo(whole.top / "part").ok("config", "core.hooksPath", ".husky/_")
    whole.ok("config", "extensions.worktreeConfig", "true")
    for name in ("one\ntree", "other"):
        whole.ok("worktree", "add", "-q", "-b", name[:3], str(tmp_path / name))
        Repo(tmp_path / name).ok("config", "--worktree", "core.commentChar", ";")
    Repo(tmp_path / "other").ok("config", "--worktree", "core.hooksPath", "/dev/null")
    held.guard(Repo(tmp_path / "one\ntree"))
    for place in (whole.top, tmp_path / "one\ntree"):
        assert hooks.hooks_directory(str(place)).left_out == (
            f"{tmp_path}/other is not guarded: core.hooksPath (worktree) leads to /dev/null.",
            f"{whole.top}/part is not guarded: core.hooksPath (local) leads to {whole.top}/part/.husky/_.",
        )


# Hooks of others


def test_it_knows_the_lines_that_it_had_people_add(repo: Repo, held: Held) -> None:
    hooks.uninstall(str(repo.top))
    repo.ok("config", "core.hooksPath", ".husky/_")
    with pytest.raises(NexusError) as refused:
        held.guard(repo)
    for line in refused.value.message.splitlines():
        name, _, command = line.strip().partition(": ")
        if name in hooks.NAMES:
            for file, text in ((f".husky/_/{name}", f'sh .husky/{name} "$@"'), (f".husky/{name}", command)):
                (repo.top / file).parent.mkdir(parents=True, exist_ok=True)
                (repo.top / file).write_text(f"#!/bin/sh\n{text}\n")
                (repo.top / file).chmod(0o755)
    held.reserve("ann", repo.top, "a.py")
    ben = repo.of("ben")
    ben.change("a.py")
    fails(ben, "commit", "-qm", "x")
    where = hooks.hooks_directory(str(repo.top))
    assert {hook.state for hook in where.hooks} == {"by hand"} and not where.is_left_to_others
    held.guard(repo)  # nothing to do
    call = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "git commit -nm x"}}
    told = Harness(held.home, repo.top).hook("--client", "claude-code", "--agent-id", "ben", text=json.dumps(call))
    assert "deny" in told.stdout


def test_it_knows_the_lines_in_the_configuration_of_lefthook(repo: Repo, held: Held) -> None:
    hooks.uninstall(str(repo.top))
    for name in hooks.NAMES:
        hook = repo.top / ".git" / "hooks" / name
        hook.write_text(f'#!/bin/sh\ncall_lefthook run "{name}" "$@"\n')
        hook.chmod(0o755)
    with pytest.raises(NexusError) as refused:
        held.guard(repo)
    assert "in lefthook.yml, each as a job's `run`, that of pre-push with `use_stdin: true`:" in refused.value.message
    lines = [line.strip().split(": ", 1) for line in refused.value.message.splitlines() if line.startswith("  ")]
    made = "".join(f"{name}:\n  jobs:\n    - run: {command}\n      use_stdin: true\n" for name, command in lines)
    (repo.top / "lefthook.yml").write_text(made)
    assert {hook.state for hook in hooks.hooks_directory(str(repo.top)).hooks} == {"by hand"}
    held.guard(repo)
    assert "lefthook" in (repo.top / ".git" / "hooks" / "pre-commit").read_text()


def test_it_runs_what_was_there_after_a_framework_renamed_it(tmp_path: Path, held: Held) -> None:
    """As `pre-commit install` does; and the guard is installed again."""
    repo = Repo.make(tmp_path / "shop")
    directory = repo.top / ".git" / "hooks"

    def put(name: str, text: str) -> None:
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)

    put("pre-commit", "echo first >&2")
    held.guard(repo)
    (directory / "pre-commit").rename(directory / "pre-commit.legacy")
    put("pre-commit", 'echo framework >&2\nexec "${0%/*}/pre-commit.legacy" "$@"')
    repo.change("src/b.py")
    assert repo.of("ben").git("commit", "-m", "x").stderr.split()[:2] == ["framework", "first"]
    (directory / "pre-commit.before-nexus").unlink()
    held.guard(repo)
    held.reserve("ann", repo.top, "a.py")
    ben = repo.of("ben")
    ben.change("a.py")
    assert fails(ben, "commit", "-m", "x").count("framework") == 1


@pytest.mark.parametrize("leads", ["/dev/null", "~/hooks", "a link"])
def test_it_says_where_the_hooks_are_instead(repo: Repo, held: Held, tmp_path: Path, leads: str) -> None:
    hooks.uninstall(str(repo.top))
    if leads == "a link":
        (repo.top / ".git" / "hooks").rename(tmp_path / "hooks")
        (repo.top / ".git" / "hooks").symlink_to(tmp_path / "hooks")
    else:
        repo.ok("config", "core.hooksPath", leads)
    where = hooks.hooks_directory(str(repo.top))
    assert where.is_left_to_others and {hook.state for hook in where.hooks} == {"none"}
    with pytest.raises(NexusError) as refused:
        held.guard(repo)
    assert f"({leads if leads == 'a link' else 'local'}) leads to {where.directory}, and" in refused.value.message


def test_it_takes_out_its_own_hooks_where_git_looks_elsewhere_by_now(repo: Repo, held: Held) -> None:
    repo.ok("config", "core.hooksPath", ".husky/_")
    assert len(hooks.uninstall(str(repo.top))) == len(hooks.NAMES)
    assert not (repo.top / ".git" / "hooks" / "pre-commit").exists()


def test_a_directory_within_the_repository_is_the_repository(repo: Repo, held: Held) -> None:
    assert hooks.hooks_directory(str(repo.top / "src")) == hooks.hooks_directory(str(repo.top))
    repo.ok("config", "core.hooksPath", ".husky/_")
    where = hooks.hooks_directory(str(repo.top / "src"))
    assert where.directory == repo.top / ".husky" / "_"
    repo.ok("config", "--unset", "core.hooksPath")
    held.reserve("ann", repo.top / "src", "b.py")
    ben = repo.of("ben", repo.top / "src")
    ben.change("b.py")
    fails(ben, "commit", "-qm", "x", file="src/b.py")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_it_says_as_git_does_that_a_repository_is_anothers(repo: Repo) -> None:
    for path in (repo.top, repo.top / ".git"):
        os.chown(path, 54321, 54321)
    with pytest.raises(NexusError) as refused:
        hooks.hooks_directory(str(repo.top))
    assert "dubious ownership" in refused.value.message
    assert f"git config --global --add safe.directory {repo.top}" in refused.value.message
