"""What an agent may write into its worktree, and that the hub's git runs and reads nothing of it outside."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from nexus.control.models import MergeState, PoolAgent, PoolWorktree
from nexus.control.runners import processes, sandbox
from nexus.control.runners_file import Acp
from nexus.control.worktrees import trees, worktrees
from tests.control.test_worktrees import does, merged, pool, repository
from tests.control.test_worktrees import made as made_outside
from tests.git import git

__all__ = ["made_outside", "pool", "repository"]

SECRET = "s3cret-of-another-repository"
ZEROS = "0be2be10a4c8764f32c4bf372a98edc731a4b204"  # git's id of ZEROS_BYTES of them
ZEROS_BYTES = 5 * 1024**3
HOOKS = """
applypatch-msg commit-msg fsmonitor-watchman p4-changelist p4-post-changelist p4-pre-submit p4-prepare-changelist
post-applypatch post-checkout post-commit post-index-change post-merge post-receive post-rewrite post-update
pre-applypatch pre-auto-gc pre-commit pre-merge-commit pre-push pre-rebase pre-receive prepare-commit-msg proc-receive
push-to-checkout reference-transaction sendemail-validate update
""".split()
TWINS = (".GIT", ".git ", ".git...", ".git::$INDEX_ALLOCATION", "git~1", "GiT~1", ".g\u200cit", "a\\.git\\b")


@pytest.fixture(autouse=True)
def sandbox_works(runs_sandbox: None) -> None:
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")


@pytest.fixture
def made(made_outside: Path, sandboxed: None) -> Path:
    """The work tree of an agent called smith: made without a sandbox, whose cost that takes off, and used in it."""
    return made_outside


class Attack:
    """An agent's worktree, a repository that is not its own, and a program that leaves marks where it runs."""

    def __init__(self, tree: Path, origin: Path, outside: Path) -> None:
        self.tree, self.origin, self.outside = tree, origin, outside
        outside.mkdir()
        self.marks = [outside / "ran", origin / "ran"]
        self.program = f"touch {' '.join(map(str, self.marks))}; cat"
        self.script = tree / "evil.sh"
        self.script.write_text(f"#!/bin/sh\n{self.program}\n")
        self.script.chmod(0o755)
        self.foreign = outside / "foreign"
        self.foreign.mkdir()
        git(self.foreign, "init", "--quiet")
        (self.foreign / "secret.txt").write_text(SECRET)
        git(self.foreign, "add", ".")
        git(self.foreign, "commit", "--quiet", "-m", "Secret")
        self.secret = git(self.foreign, "rev-parse", "HEAD")

    def config(self, text: str) -> None:
        with (self.tree / ".git" / "config").open("a") as opened:
            opened.write(text)


def include_if(a: Attack) -> None:
    included = a.tree / "more"
    included.write_text(f'[filter "evil"]\nclean = {a.script}\nsmudge = {a.script}\n')
    a.config(f'[includeIf "gitdir:**"]\npath = {included}\n')
    (a.tree / ".gitattributes").write_text("* filter=evil\n")


def filter_that_is_no_utf8(a: Attack) -> None:
    with (a.tree / ".git" / "config").open("ab") as opened:
        opened.write(b'[filter "ev\xffil"]\nclean = ' + os.fsencode(a.script) + b"\n")
    (a.tree / ".gitattributes").write_bytes(b"* filter=ev\xffil\n")


def large_configuration(a: Attack) -> None:
    a.config("".join(f'[a "{number:060}"]\nb = c\n' for number in range(20_000)))
    a.config(f'[filter "evil"]\nclean = {a.script}\nprocess = {a.script}\n')
    (a.tree / ".gitattributes").write_text("* filter=evil\n")


def own_programs(a: Attack) -> None:
    for name in ("core.fsmonitor", "core.sshCommand", "diff.external", "diff.evil.textconv", "merge.evil.driver"):
        git(a.tree, "-c", "core.fsmonitor=false", "config", name, str(a.script))
    for name in ("filter.evil.clean", "filter.evil.smudge", "core.pager", "core.alternateRefsCommand"):
        git(a.tree, "-c", "core.fsmonitor=false", "config", name, str(a.script))
    (a.tree / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    (a.origin / "notes.txt").write_text("theirs\n")
    git(a.origin, "commit", "--quiet", "--all", "-m", "Theirs")


def hooks(a: Attack) -> None:
    (a.tree / "hooks").mkdir()
    for name in HOOKS:
        shutil.copy(a.script, a.tree / "hooks" / name)
        a.config(f'[hook "{name}"]\nevent = {name}\ncommand = {a.script}\n')
    git(a.tree, "config", "core.hooksPath", str(a.tree / "hooks"))
    for place in (a.tree / ".git" / "hooks", a.tree / ".git" / "refs" / "hooks"):
        shutil.copytree(a.tree / "hooks", place, dirs_exist_ok=True)


def foreign_gitdir(a: Attack) -> None:
    shutil.rmtree(a.tree / ".git")
    (a.tree / ".git").write_text(f"gitdir: {a.foreign / '.git'}\n")


def symlinked_gitdir(a: Attack) -> None:
    shutil.rmtree(a.tree / ".git")
    (a.tree / ".git").symlink_to(a.foreign / ".git")


def common_directory(a: Attack) -> None:
    (a.tree / ".git" / "commondir").write_text(f"{a.foreign / '.git'}\n")
    (a.tree / ".git" / "HEAD").write_text(f"{a.secret}\n")


def symlinked_objects(a: Attack) -> None:
    shutil.rmtree(a.tree / ".git" / "objects")
    (a.tree / ".git" / "objects").symlink_to(a.foreign / ".git" / "objects")
    (a.tree / ".git" / "HEAD").write_text(f"{a.secret}\n")


def alternates(a: Attack) -> None:
    with (a.tree / ".git" / "objects" / "info" / "alternates").open("a") as opened:
        opened.write(f"{a.foreign / '.git' / 'objects'}\n")
    (a.tree / ".git" / "HEAD").write_text(f"{a.secret}\n")


def other_work_tree(a: Attack) -> None:
    git(a.tree, "config", "core.worktree", str(a.foreign))


def links_to_files(a: Attack) -> None:
    (a.tree / "link").symlink_to(a.foreign / "secret.txt")
    (a.tree / ".gitattributes").symlink_to(a.foreign / "secret.txt")
    (a.tree / ".git" / "info" / "exclude").unlink(missing_ok=True)
    (a.tree / ".git" / "info" / "exclude").symlink_to(a.foreign / "secret.txt")


def nested_repository(a: Attack) -> None:
    inner = a.tree / "inner"
    inner.mkdir()
    git(inner, "init", "--quiet")
    git(inner, "commit", "--quiet", "--allow-empty", "-m", "Inner")
    git(a.tree, "add", "inner")
    git(a.tree, "commit", "--quiet", "-m", "With a repository")
    (a.tree / ".gitmodules").write_text(f'[submodule "inner"]\npath = inner\nurl = x\nupdate = !{a.script}\n')
    git(a.tree, "config", "submodule.inner.update", f"!{a.script}")
    git(a.tree, "config", "submodule.recurse", "true")
    git(inner, "config", "core.fsmonitor", str(a.script))


def pipe_that_is_included(a: Attack) -> None:
    os.mkfifo(a.tree / "pipe")
    a.config(f"[include]\npath = {a.tree / 'pipe'}\n")


def pipe_for_attributes(a: Attack) -> None:
    os.mkfifo(a.tree / ".gitattributes")


def hostile_index(a: Attack) -> None:
    (a.tree / ".git" / "index").write_bytes(b"DIRC" + b"\xff" * 4_096)


def grafts(a: Attack) -> None:
    (a.tree / ".git" / "info" / "grafts").write_text(f"{git(a.tree, 'rev-parse', 'HEAD')} {a.secret}\n")
    (a.tree / ".git" / "shallow").write_text(f"{git(a.tree, 'rev-parse', 'HEAD')}\n")
    (a.tree / ".git" / "objects" / "info" / "commit-graph").write_bytes(b"CGPH" + b"\xff" * 4_096)


def replaced(a: Attack) -> None:
    git(a.tree, "commit", "--quiet", "--allow-empty", "-m", "Other")
    git(a.tree, "replace", "HEAD", "HEAD~1")


def _commits_tree(a: Attack, *entries: tuple[str, str], blob: str = "") -> None:
    """Commit a tree with these entries, mode and name, whatever git thinks of them."""
    blob = blob or git(a.tree, "hash-object", "-w", "evil.sh")
    lines = b"".join(
        f"{mode} {name}\0".encode()
        + bytes.fromhex(blob if mode != "40000" else git(a.tree, "rev-parse", "HEAD^{tree}"))
        for mode, name in entries
    )
    raw = a.tree / "raw"
    raw.write_bytes(lines)
    tree = git(a.tree, "hash-object", "-w", "-t", "tree", "--literally", "raw")
    raw.unlink()
    commit = git(a.tree, "commit-tree", "-p", "HEAD", "-m", "Evil", tree)
    git(a.tree, "update-ref", "refs/heads/nexus/smith", commit)
    git(a.tree, "read-tree", "HEAD~1")


def git_directory_in_a_tree(a: Attack) -> None:
    _commits_tree(a, ("40000", ".git"))


def parent_directory_in_a_tree(a: Attack) -> None:
    _commits_tree(a, ("100755", ".."))


def incomplete_history(a: Attack) -> None:
    commit = f"tree {git(a.tree, 'rev-parse', 'HEAD^{tree}')}\nparent {a.secret}\nauthor a <a> 1 +0000\n"
    (a.tree / "raw").write_text(commit + "committer a <a> 1 +0000\n\nEvil\n")
    commit = git(a.tree, "hash-object", "-w", "-t", "commit", "--literally", "raw")
    (a.tree / ".git" / "HEAD").write_text(f"{commit}\n")


def pack_that_unpacks_to_much(a: Attack) -> None:
    """A file that is given as its difference to another: the copy of that, again and again."""
    size, copies = 2**24 - 1, 12

    def packed(kind: int, length: int, before: bytes, content: bytes) -> bytes:
        head = bytes([0x80 | kind << 4 | length & 15]) + _number(length >> 4)
        return head + before + zlib.compress(content)

    difference = _number(size) + _number(size * copies) + b"\xf0\xff\xff\xff" * copies
    base = hashlib.sha1(b"blob %d\0" % size + bytes(size)).digest()
    entries = packed(3, size, b"", bytes(size)) + packed(7, len(difference), base, difference)
    pack = b"PACK" + struct.pack(">II", 2, 2) + entries
    given = pack + hashlib.sha1(pack).digest()
    subprocess.run(["git", "index-pack", "--stdin"], cwd=a.tree, input=given, check=True, capture_output=True)
    blob = hashlib.sha1(b"blob %d\0" % (size * copies) + bytes(size * copies)).hexdigest()
    _commits_tree(a, ("100644", "zeros"), blob=blob)


def _number(value: int) -> bytes:
    """A number as packs have it, seven bits a byte."""
    return bytes([value]) if value < 128 else bytes([0x80 | value & 127]) + _number(value >> 7)


def zeros(a: Attack) -> None:
    """A file of gigabytes that was committed, and is not there."""
    header = b"blob %d\0" % ZEROS_BYTES
    packed = zlib.compressobj()
    parts = [packed.compress(header) + packed.flush(zlib.Z_FULL_FLUSH)]
    parts += [packed.compress(bytes(2**24)) + packed.flush(zlib.Z_FULL_FLUSH)] * (ZEROS_BYTES // 2**24)
    low, high = zlib.adler32(header) & 0xFFFF, zlib.adler32(header) >> 16
    parts += [b"\3\0", struct.pack(">HH", (high + ZEROS_BYTES * low) % 65521, low)]
    path = a.tree / ".git" / "objects" / ZEROS[:2] / ZEROS[2:]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(parts))
    _commits_tree(a, ("100644", "zeros"), blob=ZEROS)


def lines_without_number(a: Attack) -> None:
    (a.tree / "lines").write_bytes(b"\n" * 10_000_000)


def options_for_names(a: Attack) -> None:
    (a.tree / ".gitmodules").write_text(f'[submodule "-c"]\npath = --exec={a.script}\nurl = --upload-pack={a.script}\n')
    base = git(a.tree, "rev-parse", "HEAD")
    with (a.tree / ".git" / "packed-refs").open("a") as opened:
        opened.write(f"{base} refs/heads/--upload-pack={a.script}\n")


def programs_of_upload_pack(a: Attack) -> None:
    git(a.tree, "config", "uploadpack.packObjectsHook", str(a.script))
    git(a.tree, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(a.tree, "config", "fetch.recurseSubmodules", "true")


def very_many_refs(a: Attack) -> None:
    base = git(a.tree, "rev-parse", "HEAD")
    with (a.tree / ".git" / "packed-refs").open("a") as opened:
        opened.writelines(f"{base} refs/heads/many/{number:06}\n" for number in range(100_000))


def pipe_for_refs(a: Attack) -> None:
    os.mkfifo(a.tree / ".git" / "packed-refs")


def pipe_for_a_branch(a: Attack) -> None:
    os.mkfifo(a.tree / ".git" / "refs" / "heads" / "endless")


def lock_of_a_killed_git(a: Attack) -> None:
    (a.tree / ".git" / "index.lock").touch()


MEMORY, TIME = "needs too much memory", "took longer than"
ATTACKS: dict[
    str, tuple[Callable[[Attack], None], bool | str]
] = {  # and whether that the work comes in is as well as none, or why it is refused
    "a conditional include": (include_if, True),
    "a filter whose name is no UTF-8": (filter_that_is_no_utf8, True),
    "a configuration over 1 MB": (large_configuration, True),
    "a monitor, filters and drivers": (own_programs, True),
    "hooks": (hooks, True),
    "a .git file that leads to another repository": (foreign_gitdir, False),
    "a .git symlink to another repository": (symlinked_gitdir, False),
    "a commondir that leads to another repository": (common_directory, False),
    "a symlink to the objects of another repository": (symlinked_objects, False),
    "alternates of another repository": (alternates, False),
    "a work tree elsewhere": (other_work_tree, True),
    "symlinks to a file elsewhere": (links_to_files, True),
    "a nested repository as a submodule": (nested_repository, True),
    "a pipe as an included configuration": (pipe_that_is_included, False),
    "a pipe for attributes": (pipe_for_attributes, TIME),
    "an index that is none": (hostile_index, True),
    "grafts, a shallow file and a commit graph": (grafts, True),
    "replaced commits": (replaced, True),
    "a pack that unpacks to much": (pack_that_unpacks_to_much, MEMORY),
    "gigabytes of zeros": (zeros, TIME),
    "lines without number": (lines_without_number, MEMORY),
    "options for names": (options_for_names, True),
    "programs of upload-pack": (programs_of_upload_pack, True),
    "100,000 refs": (very_many_refs, True),
    "a pipe for refs": (pipe_for_refs, TIME),
    "a pipe for a branch": (pipe_for_a_branch, TIME),
    "a lock of a killed git": (lock_of_a_killed_git, True),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_of_it_runs_or_is_read_outside(
    made: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    attack = Attack(made, repository, tmp_path / "outside")
    play, comes_in = ATTACKS[name]
    (made / "notes.txt").write_text("mine\n")
    play(attack)
    for mark in attack.marks:  # of the agent's own git, while it played
        mark.unlink(missing_ok=True)
    if "pipe" in name or comes_in == TIME:
        monkeypatch.setattr("nexus.control.runners.git.SECONDS", 2)
    if comes_in == MEMORY:
        monkeypatch.setattr("nexus.control.runners.git.MEMORY_BYTES", 128 * 1024**2)
    for operation in ("diff", "queue", "keep"):
        answer = does(f"pool_worktree_{operation}", agent_id="smith")
        assert SECRET not in str(answer)
        if not answer["ok"]:
            assert answer["error"]["code"] == "WORKTREE_REFUSED"
            assert operation != "diff" or not isinstance(comes_in, str) or comes_in in answer["error"]["message"]
        elif operation == "diff":
            assert comes_in is True
    assert not [mark for mark in attack.marks if mark.exists()]
    shown = subprocess.run(["git", "log", "--all", "--patch"], cwd=repository, check=True, capture_output=True)
    assert SECRET.encode() not in shown.stdout
    git(repository, "fsck", "--strict", "--no-dangling")


@pytest.mark.parametrize("play", [git_directory_in_a_tree, parent_directory_in_a_tree, incomplete_history])
def test_a_fetch_is_checked_before_any_ref_moves(
    made: Path, repository: Path, tmp_path: Path, play: Callable[[Attack], None]
) -> None:
    base = git(made, "rev-parse", "HEAD")
    play(Attack(made, repository, tmp_path / "outside"))
    for operation in ("diff", "queue", "keep"):
        assert does(f"pool_worktree_{operation}", agent_id="smith")["error"]["code"] == "WORKTREE_REFUSED"
    assert git(repository, "rev-parse", "nexus/smith", "HEAD").split() == [base, base]
    assert git(repository, "for-each-ref", "refs/nexus/work") == ""


def test_a_fetch_takes_no_name_that_some_system_takes_for_a_git_directory(
    made: Path, repository: Path, tmp_path: Path
) -> None:
    base = git(made, "rev-parse", "HEAD")
    attack = Attack(made, repository, tmp_path / "outside")
    for name in TWINS:
        git(made, "update-ref", "refs/heads/nexus/smith", base)
        _commits_tree(attack, ("40000", name))
        assert does("pool_worktree_queue", agent_id="smith")["error"]["code"] == "WORKTREE_REFUSED", name
    assert git(repository, "for-each-ref", "refs/nexus/work") == ""


@pytest.mark.parametrize("way", ["objects and refs", "a commondir"])
def test_no_repository_is_taken_in_as_files(made: Path, repository: Path, tmp_path: Path, way: str) -> None:
    attack = Attack(made, repository, tmp_path / "outside")
    bare = made / "new" / "a\nb"
    if way == "a commondir":
        (bare / "other").mkdir(parents=True)
        (bare / "commondir").write_text("./other\n")
    at = bare if way == "objects and refs" else bare / "other"
    for name in ("objects", "refs"):
        (at / name).mkdir(parents=True)
        (at / name / "keep").touch()
    (at / "config").write_text(f"[core]\nrepositoryformatversion = 0\nworktree = {made}\nfsmonitor = {attack.script}\n")
    (bare / "HEAD").write_text("ref: refs/heads/main\n")
    subprocess.run(["git", "status"], cwd=bare, capture_output=True, check=False)
    assert attack.marks[0].exists() or way == "a commondir", "git runs it where nothing holds it"
    for operation in ("queue", "keep"):
        error = does(f"pool_worktree_{operation}", agent_id="smith")["error"]
        assert error["code"] == "WORKTREE_REFUSED" and "takes for a repository" in error["message"]
    assert not (repository / "new").exists()
    assert git(repository, "rev-parse", "nexus/smith") == git(repository, "rev-parse", "HEAD")
    (bare / "HEAD").rename(bare / "HEAD.txt")
    assert merged("smith").state == MergeState.MERGED
    assert (repository / "new" / "a\nb" / "HEAD.txt").exists()


def test_more_than_is_taken_in_is_refused(made: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "PACK_BYTES", 100_000)
    (made / "large").write_bytes(os.urandom(300_000))
    for operation in ("diff", "queue", "keep"):
        error = does(f"pool_worktree_{operation}", agent_id="smith")["error"]
        assert error["code"] == "WORKTREE_REFUSED" and "over 100000 bytes" in error["message"]
    assert not (repository / "large").exists()


def test_one_call_at_a_time_is_at_work_on_a_tree(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = next(iter(PoolWorktree.objects.all()))
    with trees.lock(tree.path) as other, monkeypatch.context() as patched:
        patched.setattr(trees, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: other.close()))
        assert does("pool_worktree_diff", agent_id="smith")["ok"], "it waits for one that ends soon"
    monkeypatch.setattr(trees, "PATIENCE_SECONDS", 0)
    with trees.lock(tree.path):
        error = does("pool_worktree_diff", agent_id="smith")["error"]
    assert error["code"] == "WORKTREE_REFUSED" and "call again" in error["message"]
    assert does("pool_worktree_diff", agent_id="smith")["ok"]


@pytest.fixture
def at_fetch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let a shell command run whenever a clone is about to serve what it holds."""
    program, real = tmp_path / "bin" / "git", shutil.which("git")
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")

    def patch(command: str) -> None:
        program.write_text(f'#!/bin/sh\ncase "$*" in *upload-pack*) {command};; esac\nexec {real} "$@"\n')
        program.chmod(0o755)

    patch(":")
    return patch


def test_what_a_clone_becomes_during_the_fetch_is_not_taken(
    made: Path, repository: Path, at_fetch: Callable[[str], None]
) -> None:
    (made / "notes.txt").write_text("mine\n")
    at_fetch(f"git -C {made} commit --quiet --allow-empty -m Late >&2")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == ["notes.txt"]
    assert git(made, "log", "-1", "--format=%s") == "Late"
    before = git(repository, "for-each-ref")
    assert "Late" not in git(repository, "log", "--all", "--format=%s")
    at_fetch(f"rm -r {made}/.git/objects")
    assert does("pool_worktree_keep", agent_id="smith")["error"]["code"] == "WORKTREE_REFUSED"
    assert git(repository, "for-each-ref") == before


def test_another_commit_than_was_made_is_not_taken(
    made: Path, repository: Path, at_fetch: Callable[[str], None]
) -> None:
    base = git(repository, "rev-parse", "HEAD")
    (made / "notes.txt").write_text("mine\n")
    at_fetch(f"git -C {made} update-ref refs/nexus/work {base}")
    for operation in ("diff", "queue", "keep"):
        error = does(f"pool_worktree_{operation}", agent_id="smith")["error"]
        assert error["code"] == "WORKTREE_REFUSED" and "changed while it was fetched" in error["message"]
    assert git(repository, "rev-parse", "nexus/smith") == base


def test_a_fetch_that_never_ends_holds_up_no_other_worktree(
    made: Path, repository: Path, tmp_path: Path, at_fetch: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert does("pool_create_agent", agent_id="other", cwd=str(repository), worktree=True)["ok"]
    tree = worktrees.own(PoolWorktree.objects.select_related("agent").get(agent__agent_id="smith"))
    pipe = made / "pipe"
    os.mkfifo(pipe)
    at_fetch(f"test ! -e {pipe} || cat {pipe}")
    monkeypatch.setattr(trees, "LOCK_SECONDS", 0)

    looking = threading.Thread(target=trees.survey, args=(tree,))
    looking.start()
    with pipe.open("w"):  # once it is read there
        assert does("pool_worktree_keep", agent_id="other")["ok"] and looking.is_alive()
    looking.join()


def test_a_tree_with_more_than_git_can_read_in_time_is_refused_at_once(made: Path) -> None:
    with (made / "sparse").open("wb") as sparse:
        sparse.truncate(5 * 1024**3)
    error = does("pool_worktree_diff", agent_id="smith")["error"]
    assert (
        error["code"] == "WORKTREE_REFUSED" and f"over {trees.MOST_BYTES} bytes; remove or ignore" in error["message"]
    )
    (made / ".gitignore").write_text("sparse\n")
    assert does("pool_worktree_diff", agent_id="smith")["data"]["files"] == [".gitignore"]


def _as_agent(agent: PoolAgent, command: str) -> str:
    """What a command prints that an agent runs in its sandbox."""
    runner = Acp(kind="acp", name="agent", command=["agent"])
    line = processes.confined(["sh", "-ec", command], runner, agent, cwd=agent.cwd)
    return subprocess.run(line, capture_output=True, text=True, check=False).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a directory away")
def test_a_repository_of_another_account_is_named(db: None, repository: Path, sandboxed: None) -> None:
    for path in (repository, *repository.rglob("*")):
        os.chown(path, 4321, 4321)
    error = does("pool_create_agent", agent_id="smith", cwd=str(repository), worktree=True)["error"]
    assert error["code"] == "WORKTREE_REFUSED" and "another account's" in error["message"]


def test_an_agent_commits_in_its_worktree_and_sees_the_history(made: Path, repository: Path) -> None:
    agent = PoolAgent.objects.get()
    said = _as_agent(agent, "echo two > notes.txt; git commit -qam Mine; git log --format='%s by %an'")
    assert said.split("\n")[:2] == ["Mine by smith", "Begin by Ann"]
    assert merged("smith").state == MergeState.MERGED
    assert "Mine" in git(repository, "log", "--format=%s")
    assert git(repository, "log", "-1", "--format=%s", "nexus/smith") == "Mine"


def test_it_makes_no_tree_of_a_repository_that_was_put_in_an_agents_way(made: Path, tmp_path: Path) -> None:
    attack = Attack(made, tmp_path, tmp_path / "outside")
    place = tmp_path / "place"
    place.mkdir()

    leads = place / ".git"

    def file() -> None:
        leads.write_text(f"gitdir: {attack.foreign / '.git'}\n")

    def link() -> None:
        leads.unlink()
        leads.symlink_to(attack.foreign / ".git")

    def common() -> None:
        leads.unlink()
        git(place, "init", "--quiet")
        (leads / "HEAD").write_text(f"{attack.secret}\n")
        (leads / "commondir").write_text(f"{attack.foreign / '.git'}\n")

    def borrows() -> None:
        (leads / "commondir").unlink()
        (leads / "objects" / "info" / "alternates").write_text(f"{attack.foreign / '.git' / 'objects'}\n")

    for puts in (file, link, common, borrows):
        puts()
        answer = does("pool_create_agent", agent_id="x", cwd=str(place), worktree=True)
        assert answer["error"]["code"] == "WORKTREE_REFUSED", puts
