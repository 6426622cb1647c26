"""Worktrees of agents: create, compare, merge, keep and remove them; every step is done completely or not at all.

Each is a clone that borrows the objects of the repository it was made from. git commits what an agent wrote there in a
sandbox that has that clone alone, and its origin fetches the commit from a `git upload-pack` in that sandbox. All else
(diffs, reviews, checks, merges) is of the commit in the origin.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import signal
import stat
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple

from handoffs.checks import LocalFiles
from nexus.control.config import ControlSettings
from nexus.control.permissions import protected_paths
from nexus.control.permissions.rules import Permissions
from nexus.control.runners.git import (
    ANY_CODE,
    HEAD,
    NEUTRAL,
    PERSON,
    SETTINGS,
    Git,
    GitFailed,
    GitResult,
    Origin,
    Step,
    TookTooLong,
    format_of,
    operators_settings,
    origin_of,
    printable,
    quoted,
)
from nexus.control.runners.programs import lfs_pointer
from nexus.control.worktrees import local_files
from nexus.control.worktrees.local_files import EXCLUDE
from nexus.core import foreign_files, unified_diff
from nexus.core.foreign_files import Bounds
from nexus.core.unified_diff import ChangedFile

FOLDER = "worktrees"  # below the home
LOCKS = ".locks"  # below that, since an agent could hold a lock in its own tree
SCRATCH = "lane"  # below the home: work trees in which checks run
BASES = "refs/nexus/worktrees"  # in the origin: a ref of each worktree, which holds its base
FETCHED = "refs/nexus/work"  # the work of each, as it was fetched last
DISCARDED = "refs/nexus/discarded"  # below it all refs of a worktree that was discarded
LANE = "refs/nexus/lane"  # the merge of each, as it was approved, or its work
WORK, KEPT = "refs/nexus/work", "refs/nexus/kept"  # in a worktree: its content, committed; what a discard keeps
TREE_OF = ("log", "-1", "--no-show-signature", "--format=%T")
NO_DATE = "@0 +0000"  # of commits for a look, so that the same content has the same one
MERGE = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z")
REPOSITORY = ("HEAD", "objects", "refs", "commondir")  # what git takes a directory with the first for one by
LFS = ".git/lfs/objects/"
MOVE_SECONDS = 600  # to move a work tree, since a git that is killed leaves a half
SUBMODULE = b"160000"  # its mode in a tree
ROOM_BYTES = 1024 * 1024  # that such a move needs beside its files
STALE_SECONDS = 60  # until a lock of git's is one that a killed git left
LARGE_BYTES = 1024 * 1024  # of an ignored file or directory that is named before it goes
MOST_ENTRIES = 5_000_000  # of a worktree, that are looked at
MOST_FILES = 100_000  # in an ignored directory, until it counts as large
MOST_COMMITS = 50  # that are named of those that nobody merged
MOST_REFS = 1_000  # of a worktree, that a discard keeps
DIFF_BYTES = 200_000
RECORDS_BYTES = 4_000_000  # of lists of files, with all that git says of them
PACK_BYTES = 256 * 1024 * 1024  # of one worktree's pack
DIFF = (
    *("diff", "--no-renames", "--ignore-submodules=none", "--no-ext-diff", "--no-textconv", "--no-color"),
    *("--submodule=short", "--full-index", "--no-abbrev"),
)
MOST_SUBJECTS, SUBJECT_BYTES = 20, 10_000  # of commits, that a survey names
MOST_NAMING, TEXT_BYTES = 50, 200_000  # of commits whose text may name a message
EMPTY = {  # the tree without files, by object format
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
MOST_NAMED = 10  # files that a sentence names
MOST_BRANCHES = 100  # numbers that are tried for one name
LOCK_SECONDS, PATIENCE_SECONDS, LOOK_SECONDS = 15, 5, 0.05  # to wait for a repository, a worktree, between two tries
MOST_BYTES = 4 * 1024**3  # of the files of a worktree that changed, all of which git reads
# What a clone takes over from its origin's configuration: which files it has, the addresses by which submodules with
# relative ones are found, too, and who has the objects that a partial clone lacks.
TAKEN_OVER = re.compile(r"core\.sparsecheckout(cone)?|remote\..+\.(url|promisor|partialclonefilter)", re.DOTALL)
LOGIN = re.compile(r"^(\w+://)[^/@]*@")  # a name and password in an address
SHALLOW, SPARSE = "shallow", os.path.join("info", "sparse-checkout")
CONFIG_BYTES = 1_000_000  # of each of these files
NO_FILES = LocalFiles()


class Busy(GitFailed):
    """Others are at work; the same call may succeed in a moment."""


@dataclass(frozen=True)
class Tree:
    """An agent's worktree, and the work tree that it was made from."""

    path: str
    git_dir: str
    branch: str
    base: str  # the commit that it was made from
    origin: str  # the work tree that it was made from, and merges into
    origin_git_dir: str
    borrowed: tuple[str, ...] = ()  # the object directories that it borrows from, its origin's first
    # The local files that it was made with, each with where it links to, or empty; and what it lacks of them.
    local_files: Mapping[str, str] = field(default_factory=dict, compare=False)
    lacks: str = field(default="", compare=False)

    @property
    def as_kept(self) -> dict[str, object]:
        """Its fields, as a row stores them."""
        return {name: getattr(self, name) for name in STORED} | {"borrowed": list(self.borrowed)}

    @property
    def links(self) -> list[str]:
        """The paths in its project that links of ours in it lead to."""
        return [path for path in self.local_files.values() if path]

    @property
    def name(self) -> str:
        return Path(self.path).name

    def ref(self, below: str) -> str:
        """Return its ref in its origin below one of BASES, FETCHED, LANE and DISCARDED; the last has refs below it."""
        return f"{below}/{self.name}"

    @property
    def source(self) -> Origin:
        return Origin(self.origin, self.origin_git_dir, self.borrowed)

    @property
    def as_origin(self) -> Origin:
        """The origin for worktrees of the agents below."""
        return Origin(self.path, self.git_dir, (os.path.join(self.git_dir, "objects"), *self.borrowed))

    def in_worktree(self, path: str) -> str:
        """Return the path in the worktree that corresponds to one in the origin."""
        return os.path.normpath(os.path.join(self.path, os.path.relpath(path, self.origin)))

    def moved(self, permissions: Permissions) -> Permissions:
        """Return permissions in the origin as permissions at the same paths in the worktree, and nothing more."""
        return replace(
            permissions,
            cwd=self.in_worktree(permissions.cwd),
            write_paths=tuple(self.in_worktree(path) for path in permissions.write_paths),
        )


STORED = [field.name for field in fields(Tree)]


@dataclass(frozen=True)
class Survey:
    """What the merge of a worktree changes in its target, uncommitted work included.

    Of work that cannot be merged, what it changed since the two parted; of a project's directory, since a commit.
    """

    state: str  # merged, conflict, or rewritten: the target no longer has the commit where the work began
    head: str
    uncommitted: bool
    base: str  # the commit that it is compared with
    content: str  # git's id of the tree that is shown: of the target with the work, or of the work alone
    commits: int  # that the target does not have
    conflicts: list[str]  # files
    subjects: list[str]  # of the latest commits
    naming: list[tuple[str, str]]  # commits of its own whose text may name a message, with that text
    stat: str  # as git words it: files, insertions, deletions
    files: list[ChangedFile]
    more: bool  # there are more files than these
    diff: str
    cut: bool  # it has more than `diff`
    work: str = ""  # the commit of the work, uncommitted changes included, in the origin

    @property
    def why_not(self) -> str:
        """Why the work cannot be merged; empty if it can."""
        if self.state == "conflict":
            return f"it and the branch that it merges into changed the same places of {names_in_words(self.conflicts)}"
        if self.state == "rewritten":
            return "the branch that it merges into was rewritten, and does not have the commit where the work began"
        return ""

    @property
    def unshown(self) -> list[str]:
        """The files that the diff does not show, or not all of."""
        return [file["path"] for file in self.files if not file["shown"]]


NOTHING = Survey("", "", False, "", "", 0, [], [], [], "", [], False, "", False)


def names_in_words(names: Sequence[str]) -> str:
    """Return the first names of files for a sentence, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(repr, names[:MOST_NAMED]))}{more}"


def make(origin: Origin, path: str, wanted: str, files: LocalFiles = NO_FILES) -> Tree:
    """Create a branch at the origin's commit, and a clone with it and these local files at `path`. Raises GitFailed and
    leaves nothing behind then; NothingToClone if that has no commit."""
    base, _ = origin.git().steps(HEAD, Step(*MERGE, -1, -1))  # git can merge what is made of it
    try:
        Path(path).mkdir(mode=0o700)  # first: what is there already is never removed
    except OSError as error:
        raise GitFailed(str(error)) from None
    tree = Tree(path, os.path.join(path, ".git"), "", base.line, origin.top, origin.git_dir, origin.objects)
    try:
        with alone(origin.common):
            tree = replace(tree, branch=_new_branch(tree, wanted))
        return _create(tree, tree.base, files)
    except (GitFailed, OSError) as error:
        remove(tree) if tree.branch else Path(path).rmdir()
        raise GitFailed(str(error)) from None


def _new_branch(tree: Tree, wanted: str) -> str:
    """Create the branch `nexus/<name>` at the worktree's base, with a number if the name is taken. git makes no branch
    that somebody else has made meanwhile. A ref keeps the base, although somebody deletes the branch and rewrites the
    history."""
    git = tree.source.git()
    for number in range(1, MOST_BRANCHES):
        branch = f"nexus/{wanted}" + (f"-{number}" if number > 1 else "")
        if not git.line("for-each-ref", "--count=1", f"refs/heads/{branch}"):  # or below it
            created = (f"create {ref} {tree.base}\n" for ref in (f"refs/heads/{branch}", tree.ref(BASES)))
            git.steps(Step("update-ref", "--stdin", input="".join(created).encode()))
            return branch
    raise GitFailed(f"no branch nexus/{wanted} can be made")


def _create(tree: Tree, commit: str, files: LocalFiles) -> Tree:
    """Create a clone at the worktree's path, with its branch at a commit, and local files; return it with these. Raises
    GitFailed."""
    source, settings = tree.source, tree.source.git().steps(SETTINGS)[0].settings
    who, seen = tree.branch.rpartition("/")[2], operators_settings()
    taken_over = {name: LOGIN.sub(r"\1", settings[name]) for name in settings if TAKEN_OVER.fullmatch(name)} | seen
    taken_over.pop("core.excludesfile", None)  # an agent does not see it, so its lines are copied
    address = _address(source, f"{who}@localhost")
    taken_over |= {"user.name": who, "user.email": address, "core.repositoryformatversion": "1"}
    git = Git(tree.path, tree.git_dir, (source.common, *tree.borrowed[1:]), (tree.path,), seconds=source.seconds)
    for name, content in {
        os.path.join("objects", "info", "alternates"): "".join(f"{quoted(path)}\n" for path in tree.borrowed).encode(),
        EXCLUDE: _excluded(tree, seen),
        SHALLOW: _read(source.common, SHALLOW),
        SPARSE: _read(source.git_dir, SPARSE),
    }.items():
        if content is not None:
            path = Path(tree.git_dir, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    options = ("--quiet", "--template=", f"--initial-branch={tree.branch}", f"--object-format={format_of(commit)}")
    git.steps(
        Step("init", *options),
        *(Step("config", name, value) for name, value in taken_over.items() if not value.startswith("-")),
        Step("update-ref", f"refs/heads/{tree.branch}", commit),
        Step("reset", "--quiet", "--hard"),
    )
    brought, lacks = local_files.bring(files, git)
    return replace(tree, local_files=brought, lacks=lacks)


def _excluded(tree: Tree, seen: Mapping[str, str]) -> bytes:
    """Return what is ignored in a worktree's origin: by its own file, and by the operator's."""
    found = (_read(tree.source.common, EXCLUDE), _read("", seen.get("core.excludesfile", "")))
    return b"\n".join(filter(None, found))


def _read(directory: str, name: str) -> bytes | None:
    """Return a file of a git directory; None if there is none."""
    return foreign_files.beginning(os.path.join(directory, name), CONFIG_BYTES)


def in_place(directory: str, since: datetime) -> Tree:
    """Return the work tree that holds a project's directory, to be compared with its last commit before `since`.

    Raises NoRepository and GitFailed.
    """
    origin = origin_of(directory)
    git, head = origin.git(), origin.head()
    base = git.line("rev-list", "--max-count=1", "--first-parent", f"--before={int(since.timestamp())}", head)
    base = base or EMPTY[format_of(head)]
    return Tree(origin.top, origin.git_dir, "", base, origin.top, origin.git_dir, origin.objects)


def survey(tree: Tree) -> Survey:
    """Return what the merge of a worktree changes, or what changed in a project's directory since its base. Raises
    GitFailed."""
    with at_work(tree), TemporaryDirectory(prefix="nexus-git-", ignore_cleanup_errors=True) as made:
        if tree.origin == tree.path:
            work = CommittedWork.of(_apart(tree, made).steps(*_commit_steps(tree, "Facts")))
            merge = Merge("merged", work.commit, "", tree.base, work.content)
            git = Git(made, "", tree.borrowed, (made,), apart=format_of(work.head), borrowed=(made, *tree.borrowed))
            since = [] if tree.base in EMPTY.values() else [f"^{tree.base}"]
            return _facts(git, tree, work, merge, since)
        work = _fetched(tree, f"Work of {tree.branch}")
        merge = merge_onto(tree.source, tree.base, tree.ref(FETCHED), "HEAD")
        since = [f"^{merge.target}", f"^{tree.base}"]
        return _facts(tree.source.beside(format_of(tree.base)), tree, work, merge, since)


class CommittedWork(NamedTuple):
    """What a worktree holds: the commit that its HEAD is at, a commit of all its content, which is the same where
    nothing is uncommitted, and git's id of that content."""

    head: str
    commit: str
    content: str

    @classmethod
    def of(cls, said: Sequence[GitResult]) -> CommittedWork:
        """Return what the steps of `_commit_steps` said."""
        return cls(said[0].line, said[5].line, said[6].line)


def _commit_steps(tree: Tree, message: str) -> list[Step]:
    """Return the steps that commit what a work tree holds, on no branch."""
    at = ("--work-tree", tree.path)
    listed = (*at, "ls-files", "-z", "--others", "--modified", "--exclude-standard")
    return [
        HEAD,
        Step("update-ref", "HEAD", -1, apart=True),
        Step(*listed, largest=RECORDS_BYTES, most_bytes=MOST_BYTES, apart=True),
        Step(*at, "add", "--all", "--", ".", apart=True),
        Step(*at, "commit", "--quiet", "--no-verify", "-m", message, expect=(0, 1), apart=True),  # 1: nothing is new
        Step("rev-parse", "--verify", "HEAD", apart=True),
        Step("rev-parse", "--verify", "HEAD^{tree}", apart=True),
    ]


def _apart(tree: Tree, made: str = "", date: str = NO_DATE) -> Git:
    """Return git on a work tree, with its index copied. Steps `apart` work in a repository of ours, so that no filter
    of its configuration runs; their objects go into its own, or into the directory `made`. Raises GitFailed."""
    own, seen = Path(tree.git_dir), operators_settings()
    config = {**NEUTRAL, **seen, **_endings(tree), "core.excludesfile": str(own / EXCLUDE)}
    if made:
        config["core.excludesfile"] = os.path.join(made, "exclude")
        Path(config["core.excludesfile"]).write_bytes(_excluded(tree, seen))
    else:
        _check_own(tree)
    if stat.S_ISDIR(_mode(str(Path(tree.source.common if made else own, "lfs", "objects")))):
        # What git-lfs has fetched is no change, as long as the pointer in HEAD is of it.
        config["filter.lfs.clean"] = f"{shlex.join((sys.executable, '-I', '-S', lfs_pointer.__file__))} %f"
    return Git(
        *(tree.path, tree.git_dir),
        reading=(tree.path, tree.source.common, *tree.borrowed) if made else tree.borrowed,
        writing=(made or tree.path,),
        config=config,
        person=PERSON | {"EMAIL": _address(tree.source, PERSON["EMAIL"])} | ({"DATE": date} if date else {}),
        apart=format_of(tree.base),
        objects=made or str(own / "objects"),
        borrowed=tree.borrowed,
        copies_index=True,
        seconds=tree.source.seconds,
    )


def _endings(tree: Tree) -> dict[str, str]:
    """Return how a person's own repository has line endings. Raises GitFailed."""
    if tree.origin != tree.path:
        return {}
    settings = tree.source.git().steps(SETTINGS)[0].settings
    return {name: settings[name] for name in ("core.autocrlf", "core.eol") if name in settings}


def _check_own(tree: Tree) -> None:
    """Check that a worktree still has a repository of its own. Raises GitFailed."""
    if not stat.S_ISDIR(_mode(os.path.join(tree.path, ".git"))):
        raise GitFailed(
            "its .git is not its own directory; if it leads to its origin's repository, as one of an old version does, "
            f"commit there, merge {tree.branch}, and discard it"
        )


def _mode(path: str) -> int:
    with suppress(OSError):
        return os.lstat(path).st_mode
    return 0


def _fetched(tree: Tree, message: str, *, moves: bool = False) -> CommittedWork:
    """Commit what a worktree holds, and fetch that into its origin. `moves`: its own branch and index move to it, too.
    Raises GitFailed, also for work that has local files in it."""
    at_head: list[Step] = []
    if moves:
        # Its index follows, also after a kill between the two, unless a git of the agent, at work or killed, left a
        # lock: then it shows old changes.
        at_head = [
            Step("update-ref", "-m", message, "HEAD", -3, -8),
            Step("read-tree", "--reset", -4, expect=ANY_CODE),
        ]
    named = [f":(top,literal){path}" for path in tree.local_files]
    found = Step("rev-list", "--max-count=1", tree.ref(FETCHED), f"^{tree.base}", "^HEAD", "--", *named)
    sent, [fetched, *said] = _exchange(
        tree,
        [*_commit_steps(tree, message), Step("update-ref", WORK, -2), *at_head],
        f"+{WORK}:{tree.ref(FETCHED)}",
        [Step("rev-parse", tree.ref(FETCHED)), *([found] if named else [])],
        date="" if moves else NO_DATE,
    )
    work = CommittedWork.of(sent)
    if fetched.line != work.commit:
        raise GitFailed("it changed while it was fetched; try again")
    if named and (commit := said.pop().line):
        raise GitFailed(
            f"its commit {commit[:12]} has local files ({names_in_words(list(tree.local_files))}), which are no "
            "work; take them out of its commits, and out of what its .gitignore allows"
        )
    return work


def _exchange(
    tree: Tree, steps: Sequence[Step], what: str, then: Sequence[Step], date: str = ""
) -> tuple[list[GitResult], list[GitResult]]:
    """Call git in a worktree, let its origin fetch refs from a `git upload-pack` in the same sandbox, and then call git
    there. Return what both said. Raises GitFailed.

    Every object is checked, and that everything exists that the commits refer to.
    """
    seconds = 2 * tree.source.seconds  # to commit, and to fetch
    clone, origin = replace(_apart(tree, date=date), seconds=seconds), tree.source.beside(format_of(tree.base))
    config = {**NEUTRAL, "fetch.fsckObjects": "true", "fetch.unpackLimit": "1"}
    origin = replace(origin, config=config, largest_file=PACK_BYTES, protocols="fd", seconds=seconds)
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--no-auto-maintenance")
    (asked, writes), (reads, answers) = os.pipe(), os.pipe()
    serves = Step("upload-pack", "--strict", tree.git_dir, pipe=(asked, answers), expect=(*ANY_CODE, -signal.SIGPIPE))
    fetches = Step("fetch", *options, f"fd::{reads},{writes}", what)

    def call(git: Git, ends: tuple[int, int], *steps: Step) -> list[GitResult]:
        try:
            return git.steps(*steps, fds=ends)
        finally:
            os.close(ends[0])
            os.close(ends[1])

    with ThreadPoolExecutor(1) as beside:
        sent = beside.submit(call, clone, (asked, answers), *steps, serves)
        try:
            said = call(origin, (reads, writes), fetches, *then)
        except GitFailed as error:
            sent.result()  # why it sent nothing comes first
            _remove_halves(tree.source)
            if "index-pack" in str(error) and "fsck" not in str(error):
                raise GitFailed(f"what it changed is over {PACK_BYTES} bytes, packed, or not whole") from None
            raise
    return sent.result(), said[1:]


def _remove_halves(origin: Origin) -> None:
    """Remove what fetches that failed have left of their packs, which git keeps for weeks. A file that a git still
    writes gives no lease."""
    with suppress(OSError), foreign_files.directory(os.path.join(origin.objects[0], "pack")) as packs:
        for name, _, _ in foreign_files.walk(packs, Bounds()):
            if name.startswith("tmp_"):
                with suppress(OSError), foreign_files.open_file(name, packs) as half:
                    fcntl.fcntl(half, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                    foreign_files.unlink(name, packs)


class Merge(NamedTuple):
    """The merge of some work into a target, that no commit has yet.

    It makes `content`, and is compared with the commit `since`. What cannot be merged is compared since the two parted.
    """

    state: str  # merged, conflict, or rewritten: the target no longer has the commit where the work began
    work: str
    target: str
    since: str
    content: str
    conflicts: Sequence[str] = ()  # files, whose names may hold surrogates
    made: str = ""  # git's id of the content that a merge with conflicts makes
    is_change: bool = True


def merge_onto(origin: Origin, base: str, work: str, target: str) -> Merge:
    """Merge some work that began at `base` onto a target, outside of every work tree; git runs no driver of a
    configuration. Raises GitFailed."""
    at, onto, follows, merged, parted, held, own = origin.beside(format_of(base)).steps(
        Step("rev-parse", "--verify", "--end-of-options", f"{work}^{{commit}}"),
        Step("rev-parse", "--verify", "--end-of-options", f"{target}^{{commit}}"),
        Step("merge-base", "--is-ancestor", base, -1, expect=(0, 1)),
        Step("--work-tree", origin.top, *MERGE, -2, -3, expect=ANY_CODE, largest=RECORDS_BYTES, apart=True),
        Step("merge-base", -3, -4, expect=(0, 1)),
        Step(*TREE_OF, -4),
        Step(*TREE_OF, -6),
    )
    state, conflicts = "rewritten", list[str]()
    if follows.code == 0:
        content, *conflicts = [os.fsdecode(name) for name in merged.output.split(b"\0") if name]
        if not conflicts and merged.code == 0:
            return Merge("merged", at.line, onto.line, onto.line, content, is_change=content != held.line)
        if not conflicts or merged.cut:
            raise GitFailed("git cannot merge it, and names no file in conflict")
        state = "conflict"
    made = content if conflicts else ""
    return Merge(state, at.line, onto.line, parted.line, own.line, sorted(set(conflicts)), made)


def _facts(git: Git, tree: Tree, work: CommittedWork, merge: Merge, since: Sequence[str]) -> Survey:
    """Describe a change. Raises GitFailed.

    git reads the objects alone: a repository of ours has no configuration and no attributes of others, and a tree
    cannot hide its own lines from the diff and its numbers.
    """
    between, log = (merge.since or tree.base, merge.content), ("log", "--no-show-signature", "-z")
    apart = partial(Step, apart=True)
    said = git.steps(
        apart("rev-list", "--count", work.head, *since),
        apart(*log, f"--max-count={MOST_SUBJECTS}", "--format=%s", work.head, *since, largest=SUBJECT_BYTES),
        apart(
            *(*log, f"--max-count={MOST_NAMING}", "--first-parent", "--fixed-strings", "--grep=msg_", "--format=%H %B"),
            *(work.head, *since),
            largest=TEXT_BYTES,
        ),
        apart(*DIFF, "--shortstat", *between),
        apart(*DIFF, "--raw", "--numstat", "-z", *between, largest=RECORDS_BYTES),
        apart(*DIFF, *between, largest=DIFF_BYTES),
    )
    count, subjects, naming, stat, raw, diff = said
    cut = raw.cut or diff.cut
    try:
        text, files = unified_diff.within_bounds(
            diff.output.decode(errors="replace"), unified_diff.changed_files(raw.output), cut
        )
    except unified_diff.Mismatch as error:
        raise GitFailed(str(error)) from None
    return Survey(
        merge.state,
        work.head,
        work.commit != work.head,
        between[0],
        merge.content,
        int(count.line),
        [printable(name) for name in merge.conflicts],
        [printable(each) for each in subjects.names],
        [(each[0], printable(each[2])) for each in (about.partition(" ") for about in naming.names)],
        stat.line,
        files,
        raw.cut,
        text,
        cut,
        work.commit,
    )


class Unsaved(GitFailed):
    """The removal of a worktree would take what nobody agreed to; `field` names the parameter that agrees."""

    def __init__(self, why: str, field: str, names: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.field, self.names = field, list(names)


def _saved(tree: Tree, message: str) -> tuple[list[str], list[str]]:
    """Let refs of the origin have all that a worktree holds. Return what of that its target does not have, and what no
    ref can keep. Raises GitFailed."""
    kept, stash = tree.ref(DISCARDED), f"update {KEPT}/nexus/stash/%H %H"
    steps = [
        *_deletion(KEPT),  # of an earlier try
        *_commit_steps(tree, message),
        Step("update-ref", f"{KEPT}/work", -2),
        Step("update-ref", f"{KEPT}/head", -8),
        Step(*("stash", "list", "--no-show-signature", f"--max-count={MOST_REFS + 1}"), f"--format={stash}"),
        Step("update-ref", "--stdin", input=-1),
        Step(
            *("for-each-ref", f"--count={MOST_REFS + 1}", "refs/heads", "refs/tags"),
            f"--format=update {KEPT}/%(refname:lstrip=1) %(objectname)",
        ),
        Step("update-ref", "--stdin", input=-1),
        Step("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"),
    ]
    log = ("log", f"--max-count={MOST_COMMITS}", "--no-show-signature", "--format=%h %s", "-z")
    each_once = (f"--exclude={kept}/work", f"--exclude={kept}/nexus/stash/*", f"--glob={kept}/*")
    then = [
        *_directory_steps(tree, f"{kept}/work"),
        Step(*DIFF, "--name-only", "-z", f"{kept}/head", f"{kept}/work"),
        Step(*log, *each_once, "--not", "HEAD"),
        Step("for-each-ref", "--format=%(objectname:short) %(contents:subject)", f"{kept}/nexus/stash"),
    ]
    [*_, stashed, _, refs, _, ignored, _], [*added, names, commits, stashes] = _exchange(
        tree, steps, f"+{KEPT}/*:{kept}/*", then
    )
    _check_directories(*added)
    listed = [*commits.names, *stashes.line.splitlines()]
    changes, lost = [*names.names, *(f"commit {each}" for each in listed)], list[str]()
    bounds, lfs = Bounds(MOST_ENTRIES), Path(tree.source.common, "lfs", "objects")

    def is_aside(path: str) -> bool:
        if path.startswith(".git/"):
            return not (LFS.startswith(f"{path}/") or path.startswith(LFS))
        above, _, name = path.rpartition("/")
        if is_repository := bool(above) and foreign_files.is_dot_git(name):
            lost.append(f"the repository {above}")
        return is_repository

    with foreign_files.directory(tree.path) as top:
        for path, _, entry in foreign_files.walk(top, bounds, is_aside):
            if path.startswith(LFS):
                lost += [] if (lfs / path.removeprefix(LFS)).is_file() else [f"the LFS object {entry.name}"]
            elif not path.startswith(".git/"):
                is_aside(path)  # a file that leads to a repository
    lost += [f"{name}, which is ignored" for name in ignored.names if _is_large(tree, name)]
    if names.cut or ignored.cut or bounds.missed or bounds.reached is not None:
        lost.append("more than can be listed")
    if any(len(each.line.splitlines()) > MOST_REFS for each in (stashed, refs)):
        lost.append(f"its branches, tags or stashes beside {MOST_REFS}")
    return [printable(name) for name in changes], [printable(name) for name in lost]


def _deletion(*below: str) -> tuple[Step, Step]:
    """Return the steps that delete all refs that have these names, or are below them."""
    return Step("for-each-ref", "--format=delete %(refname)", *below), Step("update-ref", "--stdin", input=-1)


def _is_large(tree: Tree, name: str) -> bool:
    """Return whether an ignored file, or the files in an ignored directory, have LARGE_BYTES that its origin does not
    have; also if that is not to be found out."""
    size, bounds, path = 0, Bounds(MOST_FILES), os.path.join(tree.path, name)
    try:
        about = os.lstat(path)
        if not stat.S_ISDIR(about.st_mode):
            return about.st_size >= LARGE_BYTES and not _is_copy(about, os.path.join(tree.origin, name))
        with foreign_files.directory(path) as top:
            for below, _, entry in foreign_files.walk(top, bounds):
                found = entry.stat(follow_symlinks=False)
                size += 0 if _is_copy(found, os.path.join(tree.origin, name, below)) else found.st_size
                if size >= LARGE_BYTES:
                    return True
    except OSError:
        return True
    return bounds.missed or bounds.reached is not None


def _is_copy(about: os.stat_result, path: str) -> bool:
    """Return whether a file has the size and time of another, as local files do. Raises OSError."""
    known = foreign_files.status(path)
    return known is not None and (about.st_size, about.st_mtime_ns) == (known.st_size, known.st_mtime_ns)


@contextmanager
def removal(tree: Tree, message: str, *, changes_too: bool, lost_too: bool) -> Iterator[None]:
    """Remove a worktree and its branch once the caller recorded that; if the caller fails, all of it stays.

    Work that its target does not have goes with `changes_too` alone, and stays in the origin below DISCARDED. What no
    ref can keep goes with `lost_too` alone. Raises Unsaved and GitFailed.
    """
    with at_work(tree):
        _save_all(tree, message, changes_too, lost_too)
        yield
        remove(tree)


def finish_removal(tree: Tree) -> None:
    """Remove what a removal, and a kill in the middle of one, has left, unless that is under way."""
    with suppress(Busy), lock(tree.path):
        remove(tree)


def remove(tree: Tree) -> None:
    """Remove a worktree and its branch, as far as that can be done now."""
    with suppress(GitFailed):  # what is left in the origin is refs
        _drop_branch(tree)
    with suppress(OSError):  # what cannot go is tried again
        foreign_files.remove(tree.path)


def _save_all(tree: Tree, message: str, changes_too: bool, lost_too: bool) -> None:
    """Let refs of the origin keep a worktree's work. Raises Unsaved."""
    stays = False
    try:
        changes, lost = _saved(tree, message)
        if changes and not changes_too:
            raise Unsaved("it holds unmerged changes", "changes_too", changes)
        if lost and not lost_too:
            raise Unsaved("it holds what git cannot keep", "lost_too", lost)
        stays = bool(changes)
    except Unsaved:
        raise
    except (GitFailed, OSError) as error:
        stays = lost_too  # as far as refs have it
        if not lost_too:
            raise Unsaved(f"its content cannot be read or kept ({error})", "lost_too") from None
    finally:
        if not stays:
            with suppress(GitFailed, OSError):
                tree.source.git().steps(*_deletion(tree.ref(DISCARDED)))


def _drop_branch(tree: Tree) -> None:
    """Delete a worktree's branch in its origin, and the refs that hold its base and work. A branch that somebody
    checked out, or that has commits which nothing else has, stays. Raises GitFailed."""
    if not Path(tree.source.common).is_dir():
        return
    branch, own = f"refs/heads/{tree.branch}", (tree.ref(FETCHED), tree.ref(LANE))
    with alone(tree.source.common):
        git = tree.source.git()
        about, others = git.steps(
            Step("for-each-ref", "--format=%(objectname) %(worktreepath)", branch),
            Step("for-each-ref", "--count=4", "--contains", branch, "--format=%(refname)", expect=ANY_CODE),
        )
        tip, _, place = about.line.partition(" ")
        deleted = [f"delete {ref}\n" for ref in (tree.ref(BASES), *own)]
        if tip and not place and set(others.line.splitlines()) - {branch, *own}:
            deleted.append(f"delete {branch} {tip}\n")
        git.steps(Step("update-ref", "--stdin", input="".join(deleted).encode()))


def keep(tree: Tree, message: str) -> str:
    """Commit uncommitted changes, move the worktree's branch in its origin to that commit, and return it. Raises
    GitFailed."""
    with at_work(tree):
        commit, _, moves, why_not = _committed(tree, message)
        if why_not:
            raise GitFailed(why_not)
        tree.source.git().steps(*moves)
    return commit


def hand_in(tree: Tree, message: str) -> str:
    """Do what `keep` does, and let a ref hold the commit, although its branch may not move. Return the branch that the
    origin is on. Raises GitFailed."""
    with at_work(tree):
        commit, target, moves, _ = _committed(tree, message)
        if not target.startswith("refs/heads/"):
            raise GitFailed(f"{tree.origin} is on no branch; check out the branch to merge into")
        tree.source.git().steps(Step("update-ref", tree.ref(LANE), commit), *moves)
    return target.removeprefix("refs/heads/")


def _committed(tree: Tree, message: str) -> tuple[str, str, list[Step], str]:
    """Commit uncommitted changes. Return the commit, the ref that the worktree's origin is on, the step that moves its
    branch there to the commit, and why there is none, if so. Raises GitFailed."""
    commit, ref = _fetched(tree, message, moves=True).commit, f"refs/heads/{tree.branch}"
    *directories, about, follows, head = tree.source.git().steps(
        *_directory_steps(tree, tree.ref(FETCHED)),
        Step("for-each-ref", "--format=%(objectname) %(worktreepath)", ref),
        Step("merge-base", "--is-ancestor", ref, commit, expect=(0, 1, 128)),  # 128: there is no such branch
        Step("symbolic-ref", "--quiet", "HEAD", expect=(0, 1)),
    )
    _check_directories(*directories)
    old, _, place = about.line.partition(" ")
    if place:
        return commit, head.line, [], f"{tree.branch} is checked out at {place}"
    if old and follows.code:
        why = "has commits there that the worktree does not have; rename or delete that branch first"
        return commit, head.line, [], f"{tree.branch} {why}"
    return commit, head.line, [Step("update-ref", "-m", message, ref, commit, old or "0" * len(commit))], ""


def move(origin: Origin, settings: Mapping[str, str], changed: GitResult, commit: str, branch: str) -> str:
    """Move a person's work tree, and the branch that it is on, to a commit that follows its own: the work of `branch`.
    Return where that is then. `changed` is what `git diff-tree -r -z` says of the files that this writes.

    git does it in a process of its own, which outlives the hub, and refuses if that would overwrite uncommitted
    changes. Raises Busy and GitFailed, and moves nothing then.
    """
    _check_room(origin, changed)
    forward = ("merge", "--quiet", "--ff-only", "--no-autostash", "--no-overwrite-ignore", commit)
    git = replace(origin.moving(settings), outlives=True, seconds=MOVE_SECONDS)
    try:
        return git.steps(Step(*forward), Step("rev-parse", f"refs/heads/{branch}"))[1].line
    except TookTooLong:
        raise Busy(f"git still moves {origin.top}") from None
    except GitFailed as error:
        if _is_younger(os.path.join(origin.git_dir, "index.lock")):
            raise Busy(f"git is at work in {origin.top}") from None
        if "would be overwritten" not in str(error):
            raise
        what_helps = f"commit or stash what is there, then `git -C {origin.top} merge {branch}`"
        raise GitFailed(f"{error}; {what_helps}") from None


def _check_room(origin: Origin, changed: GitResult) -> None:
    """Check that the disk has room for the files that a move writes: git leaves half of them where the disk fills up.
    Raises GitFailed."""
    records = [record.split() for record in changed.output.split(b"\0")[::2]]  # each is followed by a name
    ids = b"".join(about[3] + b"\n" for about in records if len(about) == 5 and about[1] != SUBMODULE)
    asked = Step("cat-file", "--batch-check=%(objectsize)", input=ids, largest=RECORDS_BYTES)
    [sizes] = origin.git().steps(asked)
    needed = sum(int(size) for size in sizes.output.split() if size.isdigit()) + ROOM_BYTES
    disk = os.statvfs(origin.top)
    if (free := disk.f_bavail * disk.f_frsize) < needed:
        raise GitFailed(f"the disk of {origin.top} has {free} bytes left, and the files take {needed}; make room")


def _is_younger(lock: str) -> bool:
    """Return whether a lock of git's is there, and not left over from a git that was killed."""
    with suppress(OSError):
        return time.time() - os.lstat(lock).st_mtime < STALE_SECONDS
    return False


def commits_as_operator() -> bool:
    return ControlSettings.current().pool_commit_as == "operator"


def _address(origin: Origin, usual: str) -> str:
    """Return the address of agents' commits: the operator's if they allow that, since remotes refuse others."""
    return origin.operator.get("user.email", usual) if commits_as_operator() else usual


@contextmanager
def scratch(origin: Origin, commit: str, name: str, files: LocalFiles) -> Iterator[Tree]:
    """Make a work tree of a commit of the origin, with local files, and remove it at the end. Raises GitFailed."""
    path = os.path.join(protected_paths.home(), SCRATCH, name)
    tree = Tree(path, os.path.join(path, ".git"), "merged", commit, origin.top, origin.git_dir, origin.objects)
    try:
        Path(path).mkdir(mode=0o700, parents=True)
        yield _create(tree, commit, files)
    finally:
        with suppress(OSError):
            foreign_files.remove(path)


def clear_scratch(name: str) -> None:
    """Remove the work trees that a killed hub left, by the beginning of their names."""
    for left in Path(protected_paths.home(), SCRATCH).glob(f"{name}-*"):
        with suppress(OSError):
            foreign_files.remove(str(left))


def _directory_steps(tree: Tree, ref: str) -> list[Step]:
    """Return the steps in the origin that `_check_directories` decides by: what is new, and what is there."""
    named, listed = [f":(glob)**/{name}" for name in REPOSITORY], ("diff-tree", "-r", "-t", "-z", "--no-renames")
    return [
        Step(*listed, "--name-only", "--diff-filter=A", tree.base, ref, "--", *named, largest=RECORDS_BYTES),
        Step(*listed, "--name-only", EMPTY[format_of(tree.base)], ref, "--", *named, largest=RECORDS_BYTES),
    ]


def _check_directories(added: GitResult, there: GitResult) -> None:
    """Check that no new directory of a commit is a repository to git, which then runs what its configuration says for
    anybody who works there. Raises GitFailed."""
    if added.cut or there.cut:
        raise GitFailed("it has too many new files to look at them all")
    names = set(there.names)
    for path in sorted({name.rpartition("/")[0] for name in added.names} - {""}):
        head, objects, refs, common = (f"{path}/{name}" in names for name in REPOSITORY)
        if head and (common or (objects and refs)):
            raise GitFailed(f"it has a directory that git takes for a repository, {path!r}; rename its HEAD")


def at_work(tree: Tree) -> IO[bytes]:
    """Allow one call at a time on a worktree. The next call waits for a moment, as after a turn the hub itself looks at
    it, and is refused then, so that it holds no thread for long. Raises Busy."""
    return lock(tree.path, PATIENCE_SECONDS, "another call is at work on it; call again in a moment")


def alone(repository: str) -> IO[bytes]:
    """Allow one process of this home at a time to change a repository: if two merged at once, git would refuse one.
    Raises Busy if the lock stays taken."""
    return lock(repository, LOCK_SECONDS, "another process keeps its repository locked")


def lock(name: str, seconds: float = 0, why_not: str = "") -> IO[bytes]:
    """Take a lock in the hub's own home, which is free when the file is closed. Raises Busy if it stays taken."""
    locks = Path(protected_paths.home(), FOLDER, LOCKS)
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = (locks / hashlib.sha256(os.fsencode(name)).hexdigest()[:32]).open("ab")
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                held.close()
                raise Busy(why_not) from None
            time.sleep(LOOK_SECONDS)
        else:
            return held
