"""The guard of commits and pushes: real git, real hooks, a store without a hub."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.hooks import client_processes, hook_state
from nexus.hooks.harness import derived_id
from nexus.reservations.guard import check, repository, words
from tests.conftest import Furnish
from tests.reservations.git import PAST, Held, Repo

pytestmark = pytest.mark.sqlite  # the store is a file, and rows are put into it


@pytest.fixture
def held(tmp_path: Path, furnish: Furnish) -> Held:
    return Held(furnish(tmp_path / "home"))


@pytest.fixture
def repo(runs_git: None, tmp_path: Path, held: Held) -> Repo:
    """A guarded repository."""
    made = Repo.make(tmp_path / "shop")
    held.guard(made)
    return made


def refused(repo: Repo, *arguments: str) -> str:
    """What is said of a commit that is refused, and not made."""
    before = repo.head
    done = repo.git("commit", "-m", "second", *arguments)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert repo.head == before
    return done.stderr


# What is refused


def test_it_refuses_a_commit_of_a_file_that_another_agent_holds(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/src", reason="the new\nparser", handoff_id=None, task_id=7)
    ben = repo.of("ben")
    ben.change("src/b.py")
    said = refused(ben)
    assert "this commit touches a file that another agent holds, and was refused" in said
    assert '  src/b.py: held by "ann" until 20' in said
    assert 'UTC (14 min), unless renewed, as "/src", for task 7: "the new\\nparser"\n' in said
    assert "git restore --staged -- FILE" in said
    assert 'You are agent "ben": only a person may override this' in said
    held.release("ann")
    ben.ok("commit", "-qm", "second")


CHANGES = {
    "deleted": ("git rm -q src/b.py",),
    "renamed away": ("git mv src/b.py b.py",),
    "renamed into": ("git mv a.py src/a.py",),
    "with -a": ("echo x > src/b.py", "-a"),
    "by its path": ("echo x > src/b.py", "--", "src/b.py"),
    "amended": ("echo x > src/b.py; git add src", "--amend"),
    "made a link": ("ln -sf x src/b.py", "-a"),
    "made executable": ("chmod +x src/b.py", "-a"),
    "as a directory": ("git rm -q src/b.py; mkdir -p src/b.py; echo x > src/b.py/inner; git add src",),
}


def test_it_refuses_whatever_way_a_file_is_changed(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/src/")
    ben = repo.of("ben")
    for how, (change, *arguments) in CHANGES.items():
        ben.ok("-c", f"alias.do=!{change}", "do")
        assert "held by" in refused(ben, *arguments), how
        ben.ok("reset", "-q", "--hard")
        ben.ok("clean", "-qfd")


@pytest.mark.usefixtures("runs_git")
def test_it_sees_the_first_commit_of_a_repository(tmp_path: Path, held: Held) -> None:
    repo = Repo(tmp_path / "new", NEXUS_AGENT_ID="ben")
    repo.top.mkdir()
    repo.ok("init", "-q")
    held.guard(repo)
    held.reserve("ann", repo.top, "*.py")
    repo.change("deep/down/c.py")
    assert "deep/down/c.py" in repo.git("-c", "user.name=x", "-c", "user.email=x", "commit", "-m", "first").stderr


HARMLESS: dict[str, dict[str, Any]] = {
    "shared": {"exclusive": False},
    "run out": {"expires_at": PAST},
    "released": {"released_at": PAST, "outcome": "released"},
    "of a claim that is over": {"handoff_id": "hnd_gone"},
}


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """What looks like a repository to the guard, which reads git's files."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    return tmp_path / "shop"


@pytest.mark.parametrize("what", HARMLESS)
def test_it_lets_pass_what_nobody_else_holds(top: Path, held: Held, what: str) -> None:
    held.reserve("ann", top, "/src", **HARMLESS[what])
    held.reserve("ben", top, "/src")
    assert held.in_the_way("ben", top, "src/b.py") == []


def test_it_lets_pass_other_files_and_other_projects(top: Path, held: Held, tmp_path: Path) -> None:
    held.reserve("ann", top, "/src")
    held.reserve("ann", tmp_path / "shop-of-another", "*")
    assert held.in_the_way("ben", top, "a.py", "src/b.py") == ["src/b.py"]


def test_it_lets_a_merge_bring_what_its_holder_committed_and_refuses_what_is_new_in_it(repo: Repo, held: Held) -> None:
    repo.ok("checkout", "-qb", "of-ann")
    repo.change("src/b.py", "a.py")
    repo.ok("commit", "-qm", "by ann")
    repo.ok("checkout", "-q", "main")
    repo.change("a.py")
    repo.ok("commit", "-qm", "by ben")
    held.reserve("ann", repo.top, "/src")
    ben = repo.of("ben")
    assert ben.git("merge", "of-ann").returncode == 1  # a.py, of both
    ben.change("a.py", "src/b.py")
    assert "src/b.py" in refused(ben)
    ben.ok("checkout", "of-ann", "--", "src/b.py")
    ben.ok("commit", "-qm", "merged")


# Where it was reserved


def test_it_takes_the_work_trees_of_a_repository_for_one(repo: Repo, held: Held, tmp_path: Path) -> None:
    repo.ok("worktree", "add", "-q", "-b", "of-ben", str(tmp_path / "of-ben tree"))
    repo.ok("worktree", "add", "-q", str(repo.top / ".trees" / "of-cat"))
    ben, cat = repo.of("ben", tmp_path / "of-ben tree"), repo.of("cat", repo.top / ".trees" / "of-cat")
    held.reserve("ann", repo.top, "/a.py")
    held.reserve("ben", ben.top, "/src")
    for one in (ben, cat):
        one.change("a.py")
        assert '"ann"' in refused(one)
        one.ok("reset", "-q", "--hard")
    ann = repo.of("ann")
    ann.change("src/b.py")
    assert '"ben"' in refused(ann)


def test_it_gives_a_file_that_two_hold_in_two_work_trees_to_the_first(repo: Repo, held: Held, tmp_path: Path) -> None:
    repo.ok("worktree", "add", "-q", str(tmp_path / "other"))
    ann, ben = repo.of("ann"), repo.of("ben", tmp_path / "other")
    held.reserve("ann", ann.top, "a.py")
    held.reserve("ben", ben.top, "*.py")
    ben.change("a.py")
    refused(ben)
    ann.change("a.py")
    ann.ok("commit", "-qm", "second")


@pytest.mark.parametrize(("root", "glob"), [("shop/src", "b.py"), ("shop/src", "/b.py"), (".", "shop/src/")])
def test_it_knows_projects_below_and_above_the_repository(top: Path, held: Held, root: str, glob: str) -> None:
    held.reserve("ann", top.parent / root, glob)
    assert held.in_the_way("ben", top, "a.py", "src/b.py") == ["src/b.py"]


def test_it_knows_a_repository_behind_a_link(top: Path, held: Held, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(top)
    held.reserve("ann", top, "a.py")
    assert held.in_the_way("ben", tmp_path / "link", "a.py") == ["a.py"]


def test_it_guards_a_submodule(repo: Repo, held: Held, tmp_path: Path) -> None:
    whole = Repo.make(tmp_path / "whole")
    whole.ok("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(repo.top), "part")
    part = whole.of("ben", whole.top / "part")
    held.guard(part)
    held.reserve("ann", part.top, "a.py")
    part.change("a.py")
    assert "a.py" in part.git("-c", "user.name=x", "-c", "user.email=x", "commit", "-m", "second").stderr
    held.reserve("ann", whole.top, "/part")
    held.guard(whole)
    whole.ok("add", ".gitmodules", "part")
    assert "  part/: held by" in refused(whole.of("ben"))


# Names


NAMES = [
    "with space.py",
    "zwei\nzeilen.py",
    'quo"te.py',
    "-rf",
    "esc\x1b[31m.py",
    "ü.py",
    "u\u0308.py",
    "[a]*?.py",
    ":x",
]


def test_it_sees_files_of_any_name_and_prints_them_harmless(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/odd")
    ben = repo.of("ben")
    ben.write(*(f"odd/{name}" for name in NAMES))
    ben.ok("add", "-A")
    said = refused(ben)
    assert "\x1b" not in said
    assert len(said.splitlines()) == 3 + len(NAMES)
    held.release("ann")
    ben.ok("commit", "-qm", "second")


def test_it_refuses_to_move_a_submodule_that_is_held(repo: Repo, held: Held, tmp_path: Path, remote: Path) -> None:
    part = Repo.make(tmp_path / "part")
    repo.ok("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(part.top), "lib/part.js")
    repo.ok("commit", "-qm", "with a part")
    inner = Repo(repo.top / "lib" / "part.js")
    inner.change("a.py")
    inner.ok("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "on")
    repo.ok("add", "lib/part.js")
    for pattern in ("lib/", "lib/part.js/", "lib/part.js", "/lib/**"):
        held.reserve("ann", repo.top, pattern)
        assert '  lib/part.js/: held by "ann"' in refused(repo.of("ben"))
        held.release("ann")
    held.reserve("ann", repo.top, "*.py", "lib/part")
    repo.of("ben").ok("commit", "-qm", "second")
    held.reserve("ann", repo.top, "lib/part.js/")
    done = repo.of("ben").git("push", "origin", "HEAD")
    assert done.returncode == 1 and '  lib/part.js/: held by "ann"' in done.stderr


def test_it_sees_files_whose_names_are_no_text(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/odd/*")
    odd = os.fsencode(repo.top) + b"/odd"
    Path(os.fsdecode(odd)).mkdir()
    Path(os.fsdecode(odd + b"/\xff.py")).touch()
    for name in (b"\xff\xfe/x.py", b"y.\xffy"):
        Path(os.fsdecode(odd + b"/" + name)).parent.mkdir(exist_ok=True)
        Path(os.fsdecode(odd + b"/" + name)).touch()
    ben = repo.of("ben")
    ben.ok("add", "-A")
    said = refused(ben)
    assert all(f'"odd/{name}"' in said for name in ("\\udcff.py", "y.\\udcffy", "\\udcff\\udcfe/x.py"))


@given(st.text(st.characters(codec=None), max_size=300))
def test_it_quotes_whatever_others_wrote_on_one_line(text: str) -> None:
    for shown in (words.quoted(text), words.plain(text)):
        assert shown.isprintable()
        assert len(shown.splitlines()) <= 1


def test_it_stands_many_files_and_many_reservations(top: Path, held: Held) -> None:
    held.reserve("ann", top, *(f"/held/{number}/*.py" for number in range(5000)))
    many = [f"many/{number % 100}/{number}.py" for number in range(20_000)]
    assert held.in_the_way("ben", top, *many, "held/4999/x.py") == ["held/4999/x.py"]


# Who


def test_it_takes_the_agent_of_the_work_tree_where_the_environment_names_none(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "a.py")
    repo.ok("config", "nexus.agent", "ann")
    repo.change("a.py")
    repo.ok("commit", "-qm", "second")
    repo.change("a.py")
    assert '"ben": only a person' in refused(repo.of("ben"))


def test_it_refuses_a_person_too_and_says_how_to_go_on(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "a.py")
    repo.ok("config", "nexus.agent", "ben")
    repo.change("a.py")
    person = repo.of("")
    assert 'NEXUS_OVERRIDE="why" git commit' in refused(person)
    assert "only a person" in repo.git("commit", "-m", "second", NEXUS_OVERRIDE="I like it").stderr
    person.ok("commit", "--no-verify", "-qm", "git's own way")


# Pushes


@pytest.fixture
def remote(runs_git: None, repo: Repo, tmp_path: Path) -> Path:
    place = tmp_path / "remote.git"
    repo.ok("init", "-q", "--bare", "-b", "main", str(place))
    repo.ok("remote", "add", "origin", str(place))
    repo.ok("push", "-q", "-u", "origin", "main")
    return place


def test_it_refuses_a_push_of_what_another_agent_holds(repo: Repo, held: Held, remote: Path) -> None:
    ben = repo.of("ben")
    ben.change("src/b.py")
    ben.ok("commit", "-qm", "the second")
    ben.change("a.py")
    ben.ok("commit", "-qm", "third")
    held.reserve("ann", repo.top, "/src")
    for where in (
        ["origin", "main"],
        ["origin", "HEAD:refs/heads/new"],
        ["--force", "origin", "main"],
        [str(remote), "main"],
        ["origin", "HEAD^{/the second}:refs/heads/new"],
    ):
        done = ben.git("push", *where)
        assert done.returncode == 1, where
        assert "this push touches a file that another agent holds" in done.stderr
    held.release("ann")
    ben.ok("push", "-q", "origin", "main")


def test_it_sees_every_commit_whatever_git_is_configured_to_show(repo: Repo, held: Held, tmp_path: Path) -> None:
    for name, value in {"log.showRoot": "false", "color.ui": "always", "log.diffMerges": "off"}.items():
        repo.ok("config", name, value)
    repo.ok("checkout", "-qb", "other", "HEAD")
    repo.change("src/b.py")
    repo.ok("commit", "-qm", "theirs")
    repo.ok("checkout", "-q", "main")
    repo.change("src/b.py")
    repo.ok("commit", "-qm", "ours")
    repo.ok("init", "-q", "--bare", str(tmp_path / "other.git"))
    repo.ok("push", "-q", str(tmp_path / "other.git"), "main", "other")
    repo.ok("remote", "add", "origin", str(tmp_path / "other.git"))
    repo.ok("fetch", "-q", "origin")
    repo.git("merge", "other")
    repo.change("src/b.py")
    repo.ok("commit", "-qm", "merged by hand")
    held.reserve("ann", repo.top, "/src")
    assert "src/b.py: held" in repo.of("ben").git("push", "origin", "main").stderr
    repo.ok("init", "-q", "--bare", str(tmp_path / "first.git"))
    repo.ok("remote", "remove", "origin")
    held.release("ann")
    held.reserve("ann", repo.top, "/a.py")
    assert "a.py: held" in repo.of("ben").git("push", str(tmp_path / "first.git"), "main").stderr


@pytest.mark.parametrize("tagged", [True, False])
def test_it_refuses_a_pushed_tree_that_has_what_another_agent_holds(
    tagged: bool, repo: Repo, held: Held, remote: Path
) -> None:
    ben = repo.of("ben")
    ben.change("src/b.py")
    ben.ok("add", ".")
    tree = ben.ok("write-tree").strip()
    if tagged:
        ben.ok("tag", "-a", "v1", tree, "-m", "a tree")
    ben.ok("push", "-q", "origin", "v1:refs/tags/v0" if tagged else f"{tree}:refs/tags/v0")
    held.reserve("ann", repo.top, "/src")
    assert "src/b.py: held" in ben.git("push", "origin", "v1" if tagged else f"{tree}:refs/tags/v1").stderr


def test_it_does_not_wait_for_a_pipe_in_the_place_of_a_git_directory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".git")
    assert repository.find_repository(str(tmp_path / "a.py")) is not None


def test_it_does_not_read_what_is_no_file_of_gits(tmp_path: Path) -> None:
    (tmp_path / ".git").symlink_to("/dev/zero")
    assert repository.find_repository(str(tmp_path / "a.py")) is not None


def test_it_lets_pass_what_a_remote_has_already(repo: Repo, held: Held, remote: Path) -> None:
    ben = repo.of("ben")
    ben.change("src/b.py")
    ben.ok("commit", "-qm", "second")
    ben.ok("push", "-q", "origin", "main", "main:other")
    held.reserve("ann", repo.top, "/src")
    ben.change("a.py")
    ben.ok("commit", "-qm", "third")
    ben.ok("tag", "-a", "v1", "-m", "v1")
    ben.ok("push", "-q", "origin", "main", "v1")
    ben.ok("push", "-q", "origin", "main:new")
    ben.ok("push", "-q", "origin", ":other")


def test_it_sees_a_rewritten_branch_that_replaces_one_it_never_fetched(
    repo: Repo, held: Held, remote: Path, tmp_path: Path
) -> None:
    other = Repo(tmp_path / "clone")
    repo.ok("clone", "-q", str(remote), str(other.top))
    other.change("a.py")
    other.ok("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "elsewhere")
    other.ok("push", "-q", "origin", "main")
    ben = repo.of("ben")
    ben.change("src/b.py")
    ben.ok("commit", "-qm", "second")
    held.reserve("ann", repo.top, "/src")
    assert "touches" in ben.git("push", "--force", "origin", "main").stderr
    held.release("ann")
    ben.ok("push", "-q", "--force", "origin", "main")


# When nobody can say


READ_ONLY = {  # what lies beside a store in a home that is mounted read-only
    "closed in order": (),
    "a killed hub's log and its index": ("-wal", "-shm"),
    "a killed hub's log": ("-wal",),
}


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
@pytest.mark.parametrize("there", READ_ONLY)
def test_it_reads_a_store_whose_directory_cannot_be_written(repo: Repo, held: Held, tmp_path: Path, there: str) -> None:
    with closing(sqlite3.connect(held.file)) as hub:
        hub.execute("PRAGMA journal_mode=WAL")
    with closing(sqlite3.connect(held.file)) as hub:
        hub.execute("PRAGMA wal_autocheckpoint=0")
        hub.execute("PRAGMA user_version=7")
        hub.commit()
        if READ_ONLY[there]:  # the reservation is in the log alone
            held.reserve("ann", repo.top, "/src/")
        shutil.copytree(held.home, tmp_path / "left")
    if not READ_ONLY[there]:
        held.reserve("ann", repo.top, "/src/")
    else:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{held.file}{suffix}").unlink(missing_ok=True)
            if suffix in ("", *READ_ONLY[there]):
                shutil.copy(tmp_path / "left" / f"{held.file.name}{suffix}", f"{held.file}{suffix}")
    ben = repo.of("ben")
    ben.change("src/b.py")
    home = str(held.home)
    ben.begun_by = ("bwrap", "--dev-bind", "/", "/", "--ro-bind", home, home)
    assert 'src/b.py: held by "ann"' in refused(ben)
    ben.git("restore", "--staged", "src/b.py")
    ben.change("a.py")
    ben.ok("commit", "-qm", "second")


def test_it_lets_pass_and_says_so_or_refuses_when_the_store_cannot_be_read(repo: Repo, held: Held) -> None:
    held.file.write_bytes(b"no database at all" * 100)
    ben = repo.of("ben")
    ben.change("a.py")
    done = ben.git("commit", "-qm", "second")
    assert done.returncode == 0
    assert "file is not a database: nothing was checked" in done.stderr
    [passed] = hook_state.faults(held.home)
    assert (passed.agent_id, passed.passed, passed.refused) == ("ben", "commit", "")
    assert "file is not a database" in passed.error
    held.guard(repo, "closed")
    held.file.unlink()
    ben.change("a.py")
    assert "unable to open database file: the commit was refused (guard_unreadable is closed)" in refused(ben)
    refused(repo)  # a person
    found = list(hook_state.faults(held.home))
    assert {(each.agent_id, each.refused, each.project_root) for each in found} == {
        ("ben", "commit", str(repo.top)),
        ("", "commit", str(repo.top)),
    }
    assert "unable to open database file" in found[0].error


@pytest.mark.usefixtures("runs_git", "kept_variables")
def test_a_push_whose_input_does_not_end_is_on_record(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(check, "TIME_LIMIT_SECONDS", 0.2)
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        arguments = ["pre-push", "", str(held.file), "closed", shlex.join(["--home", str(held.home)])]
        assert check.main(arguments) == check.REFUSED
    os.close(writing)
    [fault] = hook_state.faults(held.home)
    assert (fault.refused, fault.error) == ("push", "no answer within 0.2 s")


def test_it_says_that_operators_do_not_see_a_refusal_that_leaves_no_trace(repo: Repo, held: Held) -> None:
    held.guard(repo, "closed")
    held.file.unlink()
    (held.home / "hooks").write_text("in the way")
    repo.change("a.py")
    assert "operators do not see this" in refused(repo)


def test_it_goes_on_past_a_row_that_is_damaged(top: Path, held: Held) -> None:
    held.reserve("ann", top, "/src", pattern="/src[")
    held.reserve("ann", top, "/src", expires_at="whenever")
    assert held.in_the_way("ben", top, "src/b.py") == []
    held.reserve("ann", top, "/src")
    assert held.in_the_way("ben", top, "src/b.py") == ["src/b.py"]


def test_it_does_not_wait_for_a_store_that_is_locked(repo: Repo, held: Held) -> None:
    with closing(sqlite3.connect(held.file)) as other:
        other.execute("PRAGMA journal_mode = delete")
        other.execute("BEGIN EXCLUSIVE")
        ben = repo.of("ben")
        ben.change("a.py")
        done = ben.git("commit", "-qm", "second")
    assert done.returncode == 0
    assert "database is locked: nothing was checked" in done.stderr


def test_it_refuses_an_override_that_cannot_be_recorded(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "a.py")
    with closing(sqlite3.connect(held.file)) as store, store:
        store.execute("ALTER TABLE events RENAME TO gone")
    repo.change("a.py")
    done = repo.git("commit", "-m", "second", NEXUS_OVERRIDE="a hotfix")
    assert done.returncode == 1
    assert "the override could not be recorded, so the commit was refused" in done.stderr
    assert "Traceback" not in done.stderr


def test_it_records_a_refusal_once_however_often_an_agent_tries(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/src", "*.py", refused="[]")
    ben = repo.of("ben")
    ben.change("src/b.py")
    assert "operators" not in refused(ben)
    with closing(sqlite3.connect(held.file)) as store, store:
        store.execute("ALTER TABLE agents RENAME TO gone")  # a second recording would fail, and say so
    for _ in range(2):
        assert "operators" not in refused(ben)
    with closing(sqlite3.connect(held.file)) as store, store:
        store.execute("ALTER TABLE gone RENAME TO agents")
    repo.change("src/b.py")
    refused(repo)  # a person
    with closing(sqlite3.connect(held.file)) as store:
        refusals = store.execute("SELECT refused FROM file_reservations ORDER BY reservation_id").fetchall()
        events = store.execute("SELECT actor_agent_id, payload FROM events WHERE type = 'file.refused'").fetchall()
    assert [[it["agent_id"] for it in json.loads(text)] for (text,) in refusals] == [["ben", None], []]
    assert [actor for actor, _ in events] == ["ben", None]
    assert {name: json.loads(events[0][1])[name] for name in ("verb", "holder", "paths", "patterns")} == {
        "verb": "commit",
        "holder": "ann",
        "paths": ["src/b.py"],
        "patterns": ["/src"],
    }


def test_it_refuses_with_a_store_of_before_refusals_were_recorded(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "a.py")
    with closing(sqlite3.connect(held.file)) as store, store:
        store.execute("ALTER TABLE file_reservations RENAME COLUMN refused TO gone")
    ben = repo.of("ben")
    ben.change("a.py")
    assert "held by" in refused(ben)


def test_it_refuses_what_it_cannot_record(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "a.py", refused="[]")
    with closing(sqlite3.connect(held.file)) as store, store:
        store.execute("ALTER TABLE events RENAME TO gone")
    ben = repo.of("ben")
    ben.change("a.py")
    said = refused(ben)
    assert "held by" in said and "guard: operators do not see this: " in said


def test_it_knows_the_agent_that_setup_named_by_the_marks_of_its_clients_shell(repo: Repo, held: Held) -> None:
    names = {client: derived_id(client, os.path.realpath(repo.top)) for client in client_processes.MARKS}
    recorded = json.dumps([{"agent_id": agent_id} for agent_id in names.values()])
    held.reserve("ann", repo.top, "src/b.py", refused=recorded)
    for client, agent_id in names.items():
        held.reserve(agent_id, repo.top, "a.py")
        shell = Repo(repo.top, **{client_processes.MARKS[client]: "1"})
        shell.change("a.py")
        shell.ok("commit", "-qm", "its own")
        held.release(agent_id)
        shell.change("src/b.py")
        said = shell.git("commit", "-m", "another's", NEXUS_OVERRIDE="I want to").stderr
        assert f'You are agent "{agent_id}": only a person may override this' in said
        shell.ok("reset", "-q", "--hard")


# What passes it


def passed_of(held: Held) -> list[tuple[str | None, dict[str, Any]]]:
    with closing(sqlite3.connect(held.file)) as store:
        found = store.execute("SELECT actor_agent_id, payload FROM events WHERE type = 'file.passed'").fetchall()
    return [(actor, json.loads(payload)) for actor, payload in found]


def test_it_finds_a_commit_that_was_made_past_it(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/src")
    ben = repo.of("ben")
    ben.change("src/b.py", "a.py")
    refused(ben)
    for _ in range(2):
        done = ben.git("commit", "--no-verify", "--allow-empty", "-m", "second")
        ben.change("src/b.py")
    assert done.returncode == 0
    assert "this commit was made past the guard" in done.stderr
    assert 'src/b.py: held by "ann"' in done.stderr
    [(actor, payload)] = passed_of(held)
    assert (actor, payload["holder"], payload["paths"]) == ("ben", "ann", ["src/b.py"])


def test_it_finds_a_commit_that_was_picked_and_none_of_the_holder(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/src")
    ann = repo.of("ann")
    ann.ok("checkout", "-qb", "of-ann")
    ann.change("src/b.py")
    ann.ok("commit", "-qm", "by its holder")
    ann.ok("checkout", "-q", "main")
    assert passed_of(held) == []
    repo.of("ben").ok("cherry-pick", "of-ann")
    assert [actor for actor, _ in passed_of(held)] == ["ben"]


def test_a_person_who_overrides_it_is_recorded_once(repo: Repo, held: Held) -> None:
    held.reserve("ann", repo.top, "/src")
    repo.change("src/b.py")
    done = repo.git("commit", "-m", "hotfix", NEXUS_OVERRIDE="it is down")
    assert "past the guard" not in done.stderr
    assert passed_of(held) == []


# Hooks that were there before


def hook(repo: Repo, name: str, text: str) -> Path:
    file = repo.top / ".git" / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o750)
    return file


@pytest.mark.usefixtures("runs_git")
def test_it_runs_the_hook_that_was_there_first_and_keeps_its_exit_code(tmp_path: Path, held: Held) -> None:
    repo = Repo.make(tmp_path / "old")
    hook(repo, "pre-commit", "git add staged-by-it.py; [ ! -e fail ] || exit 3")
    hook(repo, "pre-push", 'echo "$1" > pushed; cat >> pushed')
    held.guard(repo)
    held.reserve("ann", repo.top, "staged-by-it.py")
    ben = repo.of("ben")
    ben.write("staged-by-it.py")
    ben.change("a.py")
    assert "staged-by-it.py" in refused(ben)
    (repo.top / "fail").touch()
    assert "held by" not in refused(ben)
    assert os.waitstatus_to_exitcode(os.system(f"cd '{repo.top}' && .git/hooks/pre-commit")) == 3
    (repo.top / "fail").unlink()
    held.release("ann")
    ben.ok("commit", "-qm", "second")
    ben.ok("init", "-q", "--bare", str(tmp_path / "remote"))
    ben.ok("push", "-q", str(tmp_path / "remote"), "main")
    pushed = (repo.top / "pushed").read_text().splitlines()
    assert pushed[0] == str(tmp_path / "remote")
    assert pushed[1].startswith("refs/heads/main ")


@pytest.mark.usefixtures("runs_git")
def test_it_runs_a_hook_that_names_no_interpreter_and_refuses_for_one_that_cannot_run(
    tmp_path: Path, held: Held
) -> None:
    repo = Repo.make(tmp_path / "old")
    file = hook(repo, "pre-commit", "")
    file.write_text("exit 5\n")
    held.guard(repo)
    repo.change("a.py")
    assert repo.git("commit", "-m", "second").returncode == 1
    file.with_name("pre-commit.before-nexus").write_text("#!/no/such/program\n")
    done = repo.git("commit", "-m", "second")
    assert done.returncode == 1
    assert "pre-commit.before-nexus cannot be run: No such file or directory" in done.stderr
    file.with_name("pre-commit.before-nexus").write_text("exit 0\n")
    repo.ok("commit", "-qm", "second")


@pytest.mark.usefixtures("runs_git")
def test_it_ends_silently_at_ctrl_c(tmp_path: Path, held: Held) -> None:
    repo = Repo.make(tmp_path / "old")
    hook(repo, "pre-commit", "kill -INT $PPID; sleep 0.5")
    held.guard(repo)
    repo.change("a.py")
    done = repo.git("commit", "-m", "second")
    assert done.returncode == 1
    assert done.stderr == ""


@pytest.mark.usefixtures("runs_git")
def test_it_runs_on_what_was_there_when_nexus_is_gone(
    tmp_path: Path, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = Repo.make(tmp_path / "old")
    hook(repo, "pre-commit", "exit 4")
    monkeypatch.setattr("nexus.reservations.guard.hooks.CHECK", tmp_path / "gone.py")
    held.guard(repo)
    repo.change("a.py")
    done = repo.git("commit", "-m", "second")
    assert done.returncode == 1
    assert "Nexus is no longer where it was: nothing is checked" in done.stderr
    assert stat.S_IMODE((repo.top / ".git/hooks/pre-commit.before-nexus").stat().st_mode) == 0o750
