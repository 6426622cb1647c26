"""Worktrees of agents: create, compare, merge, keep and remove them; every step is done completely or not at all.

Each is a separate repository that borrows the objects of the one it was made from, so that its agent can commit. What
an agent may have written there is read in a sandbox that has that worktree alone. The result is a pack of bounded size;
the receiving repository checks it before any branch moves.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path

from nexus.control.permissions import protected_paths
from nexus.control.permissions.rules import Permissions
from nexus.control.runners.git import Git, GitFailed, Origin, Said, first_line, origin_of
from nexus.control.worktrees import moving
from nexus.core import foreign_files, unified_diff
from nexus.core.foreign_files import Bounds
from nexus.core.unified_diff import ChangedFile

FOLDER = "worktrees"  # below the home
LOCKS = ".locks"  # below that, since an agent could hold a lock in its own tree
LEAVING = ".leaving"  # beside it: what is being removed
SCRATCH = "lane"  # below the home: work trees in which checks run
KEPT = (
    "refs/nexus/worktrees"  # in the origin: a ref of each worktree, which holds its base, and its work once discarded
)
LARGE_BYTES = 1024 * 1024  # of an ignored file or directory that is named before it goes
MOST_FILES = 100_000  # in an ignored directory, until it counts as large
MOST_COMMITS = 50  # that are named of those that nobody merged
DIFF_BYTES = 200_000
NAMES_BYTES, RECORDS_BYTES = 1_000_000, 4_000_000  # of lists of files: their names, and all that git says of them
PACK_BYTES = 256 * 1024 * 1024  # of one worktree's pack
COMPARE = (
    "diff --no-renames --ignore-submodules=none --no-ext-diff --no-textconv --no-color --submodule=short"
    " --full-index --no-abbrev"
)
MERGE = "merge-tree --write-tree --name-only --no-messages -z"
MOST_SUBJECTS, SUBJECT_BYTES = 20, 10_000  # of commits, that a survey names
MOST_NAMING, TEXT_BYTES = 50, 200_000  # of commits whose text may name a message
EMPTY = {  # the tree without files, by object format
    "sha1": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "sha256": "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
}
MOST_NAMED = 10  # files that a sentence names
MOST_OTHERS = 100  # branches of other agents, the newest, that may have the same commits
MOST_BRANCHES = 100  # numbers that are tried for one name
LOCK_SECONDS, PATIENCE_SECONDS, LOOK_SECONDS = 15, 5, 0.05  # to wait for a repository, a worktree, between two tries
# Calls at work at once, so that repositories that make git take long leave room for others: of one agent with all
# below it, of all agents, and with those of operators.
SHARE, AT_ONCE, WITH_OPERATORS = 2, 3, 4
TIME_LIMIT_SECONDS = 3  # to wait for room
MOST_BYTES = 8 * 1024**3  # of the files of a worktree, all of which git reads
BUSY = "another call is at work on it; call again in a moment"

# A fresh git directory, without configuration and attributes of others.
FRESH = """
mkdir -p "$SCRATCH"
git init --quiet --bare --template= --initial-branch=none --object-format="$FORMAT" "$SCRATCH/git"
"""
# One around a tree, whose own configuration, attributes and index are not read.
OPEN = """
own=$TREE/.git
head=$(git --git-dir="$own" --work-tree="$TREE" rev-parse --verify --end-of-options 'HEAD^{commit}')
cd "$TREE"
export GIT_DIR="$SCRATCH/git" GIT_WORK_TREE="$TREE"
"""
# What git-lfs keeps is a pointer in HEAD, and content in the worktree once the agent has fetched it there. That is no
# change, as long as the pointer is of it. This needs no git-lfs here, and no filter of the configuration runs.
ADD = """
git read-tree "$head"
size=0
for bytes in $(
    git -c core.excludesFile="$own/info/exclude" ls-files -z --cached --others --exclude-standard |
        xargs -0 -r stat -c %s -- 2>/dev/null || true
); do
    if [ "$bytes" -gt "$((MOST_BYTES - size))" ]; then
        echo "its files have over $MOST_BYTES bytes; remove or ignore what is large" >&2
        exit 1
    fi
    size=$((size + bytes))
done
cat > "$SCRATCH/clean" << 'END'
if [ "$(head -c 42 < "$1")" = "version https://git-lfs.github.com/spec/v1" ]; then exec cat; fi
sum=$(sha256sum < "$1")
pointer=$(printf 'version https://git-lfs.github.com/spec/v1\\noid sha256:%s\\nsize %s' "${sum%% *}" "$(wc -c < "$1")")
if [ "$(git cat-file blob ":$1" 2>/dev/null)" = "$pointer" ]; then printf '%s\\n' "$pointer"; else cat; fi
END
lfs=filter.lfs.clean=
[ ! -d "$own/lfs/objects" ] || lfs="filter.lfs.clean=sh '$SCRATCH/clean' %f"
git -c core.excludesFile="$own/info/exclude" -c "$lfs" add --all -- .
content=$(git write-tree)
commit=$head
if [ "$content" != "$(git rev-parse "$head^{tree}")" ]; then
    commit=$(git commit-tree -p "$head" -m "$MESSAGE" "$content")
fi
"""
LOOK = 'export GIT_ALTERNATE_OBJECT_DIRECTORIES="$OWN_OBJECTS:$OBJECTS"\n'
SAVE = 'export GIT_OBJECT_DIRECTORY="$own/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$OBJECTS"\n'
ADVANCE = """
if [ "$commit" != "$head" ]; then
    git --git-dir="$own" update-ref -m "$MESSAGE" HEAD "$commit" "$head"
    git --git-dir="$own" read-tree "$commit"
fi
"""
PACK = """
printf '%s %s\\n' "$commit" "$head"
{
    printf '%s\\n' "$commit"
    for known in $KNOWN; do if git cat-file -e "$known" 2>/dev/null; then printf '^%s\\n' "$known"; fi; done
} | git pack-objects --quiet --revs --thin --stdout
"""
# What is in no commit of the target, and what no ref can keep, by kind: names begin with no slash, and end with a NUL.
LOSSES = """
printf '/file\\0'
git diff --no-renames --ignore-submodules=none --name-only -z "$head" "$content"
{
    git --git-dir="$own" rev-list --max-count="$MOST" --all HEAD --not "$TARGET"
    git --git-dir="$own" rev-list --max-count="$MOST" --walk-reflogs refs/stash --not "$TARGET" 2>/dev/null || true
} | sort -u > "$SCRATCH/commits"
printf '/commit\\0'
[ ! -s "$SCRATCH/commits" ] ||
    git log --stdin --no-walk=unsorted --no-show-signature -z --format='%h %s' < "$SCRATCH/commits"
printf '/repository\\0'
find . -mindepth 2 -name .git -print0
printf '/lfs\\0'
[ ! -d "$own/lfs/objects" ] || find "$own/lfs/objects" -type f -printf '%P\\0'
printf '/ignored\\0'
git -c core.excludesFile="$own/info/exclude" ls-files -z --others --ignored --exclude-standard --directory
"""
# One commit with all that the worktree holds: its content, and the tips of its branches, tags and stashes as parents.
GATHER = """
set --
for tip in $(
    {
        git --git-dir="$own" for-each-ref --format='%(objectname)'
        git --git-dir="$own" rev-list --walk-reflogs refs/stash 2>/dev/null || true
    } | sort -u
); do
    tip=$(git rev-parse --verify --quiet "$tip^{commit}") || continue
    if ! git merge-base --is-ancestor "$tip" "$commit"; then set -- "$@" -p "$tip"; fi
done
if [ $# -gt 0 ]; then commit=$(git commit-tree -p "$commit" "$@" -m "$MESSAGE" "$content"); fi
"""
HOLD = """
git update-ref -m "$MESSAGE" "$REF" "$COMMIT"
"""
# What the target will be: `to`, compared with `from`, the target as it is. What cannot be merged is shown since the two
# parted. The merge reads the same configuration and attributes as that of the merge lane.
OUTCOME = """
state=merged from=$TARGET commit=$COMMIT head=$HEAD
if ! git merge-base --is-ancestor "$BASE" "$TARGET"; then state=rewritten; else
    code=0
    GIT_DIR="$OWN" GIT_WORK_TREE="$TOP" git -C "$TOP" $MERGE "$TARGET" "$commit" > "$SCRATCH/merged" || code=$?
    case $code in 0) ;; 1) state=conflict ;; *) exit "$code" ;; esac
fi
if [ "$state" = merged ]; then to=$(head -c ${#TARGET} "$SCRATCH/merged"); else
    to=$commit from=$(git merge-base "$TARGET" "$commit" || printf '%s' "$BASE")
fi
"""
BROUGHT = """
git rev-list "$commit" "^$TARGET" | sort > "$SCRATCH/commits"
git for-each-ref --no-merged="$TARGET" --count="$MOST_OTHERS" --sort=-committerdate --format='%(refname)' \\
    refs/heads/nexus/ > "$SCRATCH/branches"
while IFS= read -r branch; do
    [ "$branch" != "refs/heads/$BRANCH" ] || continue
    count=$(git rev-list "$branch" "^$TARGET" | sort | comm -12 - "$SCRATCH/commits" | wc -l)
    [ "$count" = 0 ] || printf '%s %s\\n' "$count" "${branch#refs/heads/}"
done < "$SCRATCH/branches" > "$SCRATCH/brought"
"""
COMMIT_OUTCOME = """
content=$(git rev-parse "$to^{tree}")
printf '%s %s\\n' "$content" "$(git commit-tree -p "$TARGET" -p "$commit" -m "$MESSAGE" "$content")"
"""
IN_PLACE = "state=merged from=$BASE to=$content\n"
# A git directory that is bare reads no attributes: a tree cannot hide its own lines from the diff and its numbers.
FACTS = """
unset GIT_WORK_TREE
export GIT_DIR="$SCRATCH/git"
touch "$SCRATCH/merged" "$SCRATCH/brought"
part() { head -c "$1" > "$SCRATCH/part"; wc -c < "$SCRATCH/part"; cat "$SCRATCH/part"; }
printf '%s\\n' "$UNCHANGED" | while IFS= read -r path; do
    code=0
    [ -z "$path" ] || git $COMPARE --quiet "$from" "$to" -- ":(top,literal)$path" || code=$?
    case $code in 0) ;; 1) printf '%s\\0' "$path" ;; *) exit "$code" ;; esac
done > "$SCRATCH/touched"
printf '%s\\n' "$state" "$head" "$([ "$commit" = "$head" ] || echo uncommitted)" "$from"
git rev-parse "$to^{tree}"
git rev-list --count "$head" $SINCE
part "$NAMES" < "$SCRATCH/merged"
part "$NAMES" < "$SCRATCH/brought"
part "$NAMES" < "$SCRATCH/touched"
git log --max-count="$MOST" --format=%s -z "$head" $SINCE | part "$SUBJECTS"
git log --max-count="$MOST_NAMING" --first-parent --fixed-strings --grep=msg_ --format='%H %B' -z \\
    "$head" $SINCE | part "$TEXTS"
git $COMPARE --shortstat "$from" "$to" | part "$NAMES"
git $COMPARE --raw --numstat -z "$from" "$to" | part "$RECORDS"
git $COMPARE "$from" "$to"
"""
CREATE = """
git init --quiet --template= --initial-branch="$BRANCH" --object-format="$FORMAT" "$TREE"
cd "$TREE"
mkdir -p .git/info
printf '%s\\n' "$LINES" > .git/objects/info/alternates
if [ -f "$COMMON/info/exclude" ]; then cp "$COMMON/info/exclude" .git/info/exclude; fi
git config user.name "$NAME"
git config user.email "$NAME@localhost"
git update-ref "refs/heads/$BRANCH" "$TIP"
[ "$HEAD" = "$TIP" ] || git update-ref --no-deref HEAD "$HEAD"
"""
CHECKOUT = "git reset --quiet --hard\n"
RECEIVE = """
mkdir -p "$SCRATCH"
cat > "$SCRATCH/pack"
export GIT_DIR="$REPOSITORY"
"""
APART = """
mkdir -p "$SCRATCH/objects/pack"
export GIT_OBJECT_DIRECTORY="${NEW_OBJECTS:-$SCRATCH/objects}" GIT_ALTERNATE_OBJECT_DIRECTORIES="$OBJECTS"
"""
IMPORT = """
[ ! -s "$SCRATCH/pack" ] || git index-pack --strict --fix-thin --stdin < "$SCRATCH/pack" > /dev/null
git cat-file -e "$COMMIT^{commit}"
git rev-list --objects --quiet "$COMMIT" --not --all > /dev/null
"""
# Files in a new directory may be a repository to git, which then runs what its configuration says for anybody who works
# there. The check goes by the ids of the directories, since their names may hold anything.
CHECK_DIRECTORIES = """
for known in "$BASE" HEAD; do git ls-tree -r -d --format='%(objectname)' "$known" || true; done 2>/dev/null |
    sort -u > "$SCRATCH/known"
git ls-tree -r -d --format='%(objectname)' "$COMMIT" > "$SCRATCH/all"
sort -u "$SCRATCH/all" | comm -13 "$SCRATCH/known" - > "$SCRATCH/new"
for name in HEAD objects refs commondir; do
    sed "s/$/:$name/" "$SCRATCH/new" | git cat-file --batch-check=there > "$SCRATCH/$name"
done
cd "$SCRATCH"
if paste -d , HEAD objects refs commondir | grep -Eq '^there,(there,there,|.*,there$)'; then
    echo "it has a directory that git takes for a repository, with HEAD, objects and refs; rename its HEAD" >&2
    exit 1
fi
"""
MOVE = """
ref=refs/heads/$BRANCH
if old=$(git rev-parse --verify --quiet "$ref"); then
    place=$(git for-each-ref --format='%(worktreepath)' "$ref")
    if [ -n "$place" ]; then echo "$BRANCH is checked out at $place"; exit; fi
    if ! git merge-base --is-ancestor "$old" "$COMMIT"; then
        echo "$BRANCH has commits there that the worktree does not have; rename or delete that branch first"; exit
    fi
    git update-ref -m "$MESSAGE" "$ref" "$COMMIT" "$old"
else
    git update-ref -m "$MESSAGE" "$ref" "$COMMIT" ""
fi
"""


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
    owner: str | None = field(default="", compare=False)  # in whose share calls work on it; None: an operator's

    @property
    def as_kept(self) -> dict[str, object]:
        """Its fields, as a row stores them."""
        return {name: getattr(self, name) for name in STORED} | {"borrowed": list(self.borrowed)}

    @property
    def kept_ref(self) -> str:
        """The ref in its origin that holds its base, and its work when it is discarded."""
        return f"{KEPT}/{Path(self.path).name}"

    @property
    def is_own(self) -> bool:
        """Whether it is a separate repository; older ones were linked to their origin's."""
        return self.git_dir == os.path.join(self.path, ".git")

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


STORED = [field.name for field in fields(Tree) if field.name != "owner"]


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
    brought: list[tuple[int, str]]  # how many of the commits other agents' branches have, too
    touched: list[str]  # of the paths that were asked for
    subjects: list[str]  # of the latest commits
    naming: list[tuple[str, str]]  # commits of its own whose text may name a message, with that text
    stat: str  # as git words it: files, insertions, deletions
    files: list[ChangedFile]
    more: bool  # there are more files than these
    diff: str
    cut: bool  # it has more than `diff`

    @property
    def why_not(self) -> str:
        """Why the work cannot be merged; empty if it can."""
        if self.state == "conflict":
            return f"it and the branch that it merges into changed the same places of {named(self.conflicts)}"
        if self.state == "rewritten":
            return "the branch that it merges into was rewritten, and does not have the commit where the work began"
        return ""

    @property
    def unshown(self) -> list[str]:
        """The files that the diff does not show, or not all of."""
        return [file["path"] for file in self.files if not file["shown"]]


@dataclass(frozen=True)
class Merge:
    """The result of a merge; with conflicts nothing was merged."""

    commit: str | None
    conflicts: list[str]


def named(names: Sequence[str]) -> str:
    """Return the first names of files for a sentence, and how many more there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(map(repr, names[:MOST_NAMED]))}{more}"


def make(origin: Origin, path: str, wanted: str, owner: str | None = "") -> Tree:
    """Create a branch at the origin's commit, and a worktree of it at `path`. Raises GitFailed and leaves nothing
    behind then."""
    with _few(owner):
        try:
            base = origin.head()
        except GitFailed as error:
            if "Needed a single revision" in str(error):
                raise GitFailed("the repository has no commit yet") from None
            raise
        try:
            Path(path).mkdir(mode=0o700)  # first: what is there already is never removed
        except OSError as error:
            raise GitFailed(str(error)) from None
        try:
            with alone(origin.common):
                branch = _new_branch(origin.writing(), wanted, base)
        except BaseException:
            Path(path).rmdir()
            raise
        git_dir = os.path.join(path, ".git")
        tree = Tree(path, git_dir, branch, base, origin.top, origin.git_dir, origin.objects, owner)
        try:
            with alone(origin.common):  # the base stays, although somebody deletes the branch and rewrites the history
                origin.writing().run("update-ref", tree.kept_ref, base)
            _create(tree, base, base, CREATE + CHECKOUT)
        except (GitFailed, OSError) as error:
            take_away(tree)
            raise GitFailed(str(error)) from None
        return tree


def _new_branch(git: Git, wanted: str, base: str) -> str:
    """Create the branch `nexus/<name>`, with a number if the name is taken. Each try is one step, so that no two
    callers get the same."""
    for number in range(1, MOST_BRANCHES):
        branch = f"nexus/{wanted}" + (f"-{number}" if number > 1 else "")
        if git.run("show-ref", "--verify", "--quiet", f"refs/heads/{branch}", expect=(0, 1)).code == 0:
            continue
        if git.run("update-ref", f"refs/heads/{branch}", base, "0" * len(base), expect=(0, 128)).code == 0:
            return branch
    raise GitFailed(f"no branch nexus/{wanted} can be made")


def _create(tree: Tree, tip: str, head: str, script: str) -> None:
    """Create a repository at the worktree's path, on its branch. Raises GitFailed."""
    common = tree.source.common
    values = {
        "TREE": tree.path,
        "FORMAT": format_of(tree.base),
        "BRANCH": tree.branch,
        "LINES": "\n".join(_quoted(path) for path in tree.borrowed),
        "COMMON": common,
        "NAME": tree.branch.rpartition("/")[2],
        "TIP": tip,
        "HEAD": head,
    }
    Git(tree.path, tree.git_dir, (common, *tree.borrowed[1:]), (tree.path,)).script(script, values)


def adopt(tree: Tree, origin: Origin) -> Tree:
    """Give a worktree that is linked to its origin's repository its own repository; its files stay. Raises GitFailed.

    The git directory of the linked one is the operator's; the content of the worktree's `.git` is not used.
    """
    common = repository_of(tree)
    own = replace(tree, git_dir=os.path.join(tree.path, ".git"), origin_git_dir=origin.git_dir, borrowed=origin.objects)
    if not Path(tree.git_dir).is_dir() and Path(own.git_dir).is_dir():
        return own  # a crash came before that was recorded
    with _at_work(tree), alone(origin.common):
        git = Git(common, tree.git_dir, (common,))
        head = git.line("rev-parse", "--verify", "HEAD^{commit}")
        tip = git.commit_of(f"refs/heads/{tree.branch}") or head
        foreign_files.remove(own.git_dir)
        _create(own, tip, head, CREATE + "git read-tree HEAD\n")
        if origin.common != common:  # it was made from a worktree, which now holds the branch
            origin.writing().run("update-ref", f"refs/heads/{tree.branch}", tip)
        foreign_files.remove(tree.git_dir)
        if origin.common != common:
            Git(common, common, (), (common,)).run("update-ref", "-d", f"refs/heads/{tree.branch}")
    return own


def in_place(directory: str, since: datetime) -> Tree:
    """Return the work tree that holds a project's directory, to be compared with its last commit before `since`.

    Raises NoRepository and GitFailed.
    """
    origin = origin_of(directory)
    git = Git(origin.common, origin.git_dir, (origin.common, *origin.objects[1:]))
    head = git.commit_of("HEAD")
    if not head:
        raise GitFailed("the repository has no commit yet")
    base = git.line("rev-list", "--max-count=1", "--first-parent", f"--before={int(since.timestamp())}", head)
    base = base or EMPTY[format_of(head)]
    return Tree(origin.top, origin.git_dir, "", base, origin.top, origin.git_dir, origin.objects, owner=origin.top)


def survey(tree: Tree, unchanged: Sequence[str] = ()) -> Survey:
    """Return what the merge of a worktree changes, or what changed in a project's directory since its base, and which
    of the paths `unchanged` are among that. Raises GitFailed."""
    values = {
        "COMPARE": COMPARE,
        "MOST": str(MOST_SUBJECTS),
        "MOST_NAMING": str(MOST_NAMING),
        "SUBJECTS": str(SUBJECT_BYTES),
        "TEXTS": str(TEXT_BYTES),
        "NAMES": str(NAMES_BYTES),
        "RECORDS": str(RECORDS_BYTES + 1),
        "UNCHANGED": "\n".join(unchanged),
    }
    largest = 4 * NAMES_BYTES + RECORDS_BYTES + SUBJECT_BYTES + TEXT_BYTES + DIFF_BYTES
    with _at_work(tree):
        if tree.origin == tree.path:
            since = "" if tree.base in EMPTY.values() else f"^{tree.base}"
            reading = (tree.path,) if tree.is_own else (tree.path, tree.source.common)
            values |= {"BASE": tree.base, "SINCE": since, "MESSAGE": "Facts"}
            steps = LOOK + ADD + IN_PLACE + FACTS
            return _survey(_script(tree, steps, reading=reading, writing=(), largest=largest, **values))
        return _survey(_with_outcome(tree, BROUGHT + FACTS, values, largest=largest))


def _with_outcome(
    tree: Tree, steps: str, values: Mapping[str, str], *, writing: tuple[str, ...] = (), largest: int = NAMES_BYTES
) -> Said:
    """Run a script on what the target of a worktree will be. Raises GitFailed."""
    target = tree.source.head()
    commit, head, pack = _packed(tree, LOOK, ADD, PACK, KNOWN=f"{tree.base} {target}")
    values = {
        **values,
        "TARGET": target,
        "COMMIT": commit,
        "HEAD": head,
        "BASE": tree.base,
        "SINCE": f"^{target} ^{tree.base}",
        "BRANCH": tree.branch,
        "REPOSITORY": tree.source.common,
        "OWN": tree.source.git_dir,
        "TOP": tree.source.top,
        "FORMAT": format_of(tree.base),
        "OBJECTS": alternates(tree.borrowed),
        "MERGE": MERGE,
        "MOST_OTHERS": str(MOST_OTHERS),
    }
    git = replace(tree.source.reading(), writing=writing)
    return git.script(FRESH + RECEIVE + APART + IMPORT + OUTCOME + steps, values, input=pack, largest=largest)


def _survey(said: Said) -> Survey:
    *lines, rest = said.output.split(b"\n", 6)
    parts = list[bytes]()
    while len(parts) < 7:
        size, _, rest = rest.partition(b"\n")
        if not size.isdigit():
            raise GitFailed("git did not say what changed")
        parts.append(rest[: int(size)])
        rest = rest[int(size) :]
    state, head, uncommitted, base, content, commits = [line.decode() for line in lines]
    merged, brought, touched, subjects, naming, stat, raw = parts
    more = len(raw) > RECORDS_BYTES
    cut = more or said.cut or len(rest) > DIFF_BYTES
    diff = rest[:DIFF_BYTES].decode(errors="replace")
    try:
        diff, files = unified_diff.shown(diff, unified_diff.changed_files(raw), cut)
    except unified_diff.Mismatch as error:
        raise GitFailed(str(error)) from None
    return Survey(
        state,
        head,
        bool(uncommitted),
        base,
        content,
        int(commits),
        sorted(set(_names(merged)[1:])),
        [(int(count), branch) for count, branch in (line.split(" ", 1) for line in brought.decode().splitlines())],
        _names(touched),
        _names(subjects),
        [(commit, text) for commit, _, text in (each.partition(" ") for each in _names(naming))],
        stat.decode(errors="replace").strip(),
        files,
        more,
        diff,
        cut,
    )


@dataclass(frozen=True)
class Losses:
    """What the removal of a worktree would take: work that its target does not have, and what no ref can keep."""

    changes: list[str]
    lost: list[str]


class Unsaved(GitFailed):
    """The removal of a worktree would take what nobody agreed to; `field` names the parameter that agrees."""

    def __init__(self, why: str, field: str, names: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.field, self.names = field, list(names)


def _losses(tree: Tree) -> Losses:
    """Return what the removal of a worktree would take. Raises GitFailed."""
    said = _script(
        tree,
        LOOK,
        ADD,
        LOSSES,
        reading=(tree.path,),
        writing=(),
        TARGET=tree.source.head(),
        MOST=str(MOST_COMMITS),
        MESSAGE="x",
    )
    found: dict[str, list[str]] = {"/file": [], "/commit": [], "/repository": [], "/lfs": [], "/ignored": []}
    kind = found["/file"]
    for name in said.output.split(b"\0")[:-1]:
        kind = found.get(os.fsdecode(name), kind)
        if not name.startswith(b"/"):
            kind.append(os.fsdecode(name))
    changes = [*found["/file"], *(f"commit {commit}" for commit in found["/commit"])]
    lost = [f"the repository {Path(name).parent}" for name in found["/repository"]]
    kept = Path(tree.source.common, "lfs", "objects")
    lost += [f"the LFS object {Path(name).name}" for name in found["/lfs"] if not (kept / name).is_file()]
    lost += [f"{name}, which is ignored" for name in found["/ignored"] if _is_large(os.path.join(tree.path, name))]
    if said.cut:
        lost.append("more than can be listed")
    return Losses([_shown(name) for name in changes], [_shown(name) for name in lost])


def _shown(name: str) -> str:
    return os.fsencode(name).decode(errors="replace")


def _is_large(path: str) -> bool:
    """Return whether an ignored file, or the files in an ignored directory, have LARGE_BYTES; also if that is not to be
    found out."""
    size, bounds = 0, Bounds(MOST_FILES)
    try:
        if not stat.S_ISDIR((about := os.lstat(path)).st_mode):
            return about.st_size >= LARGE_BYTES
        with foreign_files.directory(path) as top:
            for _, _, entry in foreign_files.walk(top, bounds):
                size += entry.stat(follow_symlinks=False).st_size
                if size >= LARGE_BYTES:
                    return True
    except OSError:
        return True
    return bounds.missed or bounds.reached is not None


@contextmanager
def removal(tree: Tree, message: str, *, changes_too: bool, lost_too: bool) -> Iterator[None]:
    """Remove a worktree and its branch while the caller records that; if the caller fails, all of it stays.

    Work that its target does not have goes with `changes_too` alone, and stays in the origin under `kept_ref`. What no
    ref can keep goes with `lost_too` alone. Raises Unsaved and GitFailed.
    """
    leaving = Path(tree.path).parent / LEAVING / Path(tree.path).name
    with _at_work(tree):
        is_kept = _saved(tree, message, changes_too, lost_too)
        leaving.parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            Path(tree.path).rename(leaving)  # one step: a crash leaves no half of it where it was
        try:
            yield
        except BaseException:
            with suppress(FileNotFoundError):
                leaving.rename(tree.path)
            raise
        with suppress(GitFailed):  # it is removed; what is left in the origin is refs
            _drop_branch(tree, is_kept)
    sweep(leaving.parent)


def sweep(leaving: Path) -> None:
    """Remove what removals, and kills in the middle of one, have left in a directory."""
    for left in leaving.iterdir() if leaving.is_dir() else ():
        with _lock(str(leaving.parent / left.name)) as is_free, suppress(OSError):  # what cannot go is tried again
            if is_free():
                foreign_files.remove(str(left))


def _saved(tree: Tree, message: str, changes_too: bool, lost_too: bool) -> bool:
    """Put a worktree's work under its ref in the origin; return whether there was any. Raises Unsaved."""
    try:
        if not tree.is_own:
            raise GitFailed("it is linked to a repository that is gone")
        found = _losses(tree)
    except GitFailed as error:
        if lost_too:
            return True
        raise Unsaved(f"its content cannot be read ({error}), so nothing of it can be kept", "lost_too") from None
    if found.changes and not changes_too:
        raise Unsaved("it holds unmerged changes", "changes_too", found.changes)
    if found.lost and not lost_too:
        raise Unsaved("it holds what git cannot keep", "lost_too", found.lost)
    if found.changes:
        try:
            commit, _, pack = _packed(tree, LOOK, ADD + GATHER, PACK, KNOWN=_known(tree), MESSAGE=message)
            with alone(tree.source.common):
                values = {
                    "REPOSITORY": tree.source.common,
                    "COMMIT": commit,
                    "BASE": tree.base,
                    "REF": tree.kept_ref,
                    "MESSAGE": message,
                }
                steps = RECEIVE + IMPORT + CHECK_DIRECTORIES + HOLD
                tree.source.writing().script(steps, values, input=pack)
        except GitFailed as error:
            if not lost_too:
                raise Unsaved(f"its changes cannot be kept ({error})", "lost_too", found.changes) from None
    return bool(found.changes)


def _drop_branch(tree: Tree, is_kept: bool) -> None:
    """Delete a worktree's branch in its origin, and its ref if that keeps nothing. A branch that somebody checked out,
    or that has commits which nothing else has, stays. Raises GitFailed."""
    common = tree.source.common if tree.is_own else repository_of(tree)
    if not Path(common).is_dir():
        return
    with alone(common):
        if not tree.is_own:
            with suppress(OSError):
                foreign_files.remove(tree.git_dir)
        git, branch = Git(common, common, tree.borrowed[1:], (common,)), f"refs/heads/{tree.branch}"
        if not is_kept:
            git.run("update-ref", "-d", tree.kept_ref)
        tip = git.commit_of(branch)
        if tip and not git.line("for-each-ref", "--format=%(worktreepath)", branch):
            others = git.line("for-each-ref", "--count=2", "--contains", tip, "--format=%(refname)").split("\n")
            if len(others) > 1:
                git.run("update-ref", "-d", branch, tip)


def keep(tree: Tree, message: str) -> str:
    """Commit uncommitted changes, move the worktree's branch in its origin to that commit, and return it. Raises
    GitFailed."""
    with _at_work(tree):
        commit, _, pack = _packed(tree, SAVE, ADD + ADVANCE, PACK, KNOWN=_known(tree), MESSAGE=message)
        with alone(tree.source.common):
            why = _receive(tree, commit, pack, message)
    if why:
        raise GitFailed(why)
    return commit


def merge(tree: Tree, message: str) -> Merge:
    """Merge a worktree, uncommitted changes included, into the branch that its origin is on.

    The merge commit is made outside of every work tree. Then the origin moves to it in one step, which git refuses if
    that would overwrite uncommitted changes there. Raises GitFailed and leaves the origin unchanged then.
    """
    with _at_work(tree):
        commit, _, pack = _packed(tree, SAVE, ADD + ADVANCE, PACK, KNOWN=_known(tree), MESSAGE=f"Work of {tree.branch}")
        with alone(tree.source.common):
            _receive(tree, commit, pack, message)  # if the branch cannot move, the merge still has the commits
            return _merged(tree.source.git(), commit, message)


def merged_tree(git: Git, onto: str, work: str) -> tuple[str, list[str]]:
    """Merge a commit onto another, outside of every work tree. Return git's id of the tree, which is empty if the merge
    changes nothing, and the files in conflict, whose names may hold surrogates. Raises GitFailed."""
    said = git.run(*MERGE.split(), onto, work, expect=(0, 1))
    content, *conflicts = [name.decode(errors="surrogateescape") for name in said.output.split(b"\0") if name]
    if said.code and not conflicts:
        raise GitFailed("git cannot merge it, and names no file in conflict")
    if not conflicts and content == git.line("rev-parse", f"{onto}^{{tree}}"):
        content = ""
    return content, sorted(set(conflicts))


def _merged(git: Git, head: str, message: str) -> Merge:
    target = git.line("rev-parse", "HEAD^{commit}")
    content, conflicts = merged_tree(git, target, head)
    if conflicts or not content:
        return Merge(None, [_shown(name) for name in conflicts])
    commit = git.line("commit-tree", "-p", target, "-p", head, "-m", message, content)
    moving.move(git, commit)
    return Merge(commit, [])


def hand_in(tree: Tree, message: str, ref: str) -> str:
    """Commit uncommitted changes, bring all commits of the worktree's HEAD to its origin under a ref, and return the
    last one. Raises GitFailed."""
    with _at_work(tree):
        commit, _, pack = _packed(tree, SAVE, ADD + ADVANCE, PACK, KNOWN=_known(tree), MESSAGE=message)
        with alone(tree.source.common):
            _receive(tree, commit, pack, message)  # if the branch cannot move, the ref still has the commits
            tree.source.writing().run("update-ref", ref, commit)
    return commit


@contextmanager
def scratch(origin: Origin, commit: str, name: str) -> Iterator[Tree]:
    """Make a work tree of a commit of the origin, and remove it at the end. Raises GitFailed."""
    path = os.path.join(protected_paths.home(), SCRATCH, name)
    tree = Tree(path, os.path.join(path, ".git"), "merged", commit, origin.top, origin.git_dir, origin.objects)
    try:
        Path(path).mkdir(mode=0o700, parents=True)
        _create(tree, commit, commit, CREATE + CHECKOUT)
        yield tree
    finally:
        with suppress(OSError):
            foreign_files.remove(path)


@contextmanager
def outcome(tree: Tree, content: str, name: str) -> Iterator[Tree]:
    """Make a work tree of what the target of a worktree will be, and remove it at the end. The target's repository gets
    nothing of it. Raises Busy if that is not `content`, as a survey found it, any more, and GitFailed."""
    with scratch(tree.source, tree.source.head(), name) as made:
        values = {"NEW_OBJECTS": os.path.join(made.git_dir, "objects"), "MESSAGE": f"Merge {tree.branch}"}
        with _at_work(tree):
            found, commit = _with_outcome(tree, COMMIT_OUTCOME, values, writing=(made.path,)).line.split()
        if found != content:
            raise Busy("the work, or the branch that it merges into, changed meanwhile")
        Git(made.path, made.git_dir, made.borrowed, (made.path,)).run("reset", "--quiet", "--hard", commit)
        yield made


def clear_scratch(name: str) -> None:
    """Remove the work trees that a killed hub left, by the beginning of their names."""
    for left in Path(protected_paths.home(), SCRATCH).glob(f"{name}-*"):
        with suppress(OSError):
            foreign_files.remove(str(left))


def content_of(tree: Tree, commit: str) -> str:
    """Return git's id of all that a commit in a worktree's origin holds. Raises GitFailed."""
    return tree.source.writing().line("rev-parse", "--verify", f"{commit}^{{tree}}")


def _known(tree: Tree) -> str:
    """Return commits that the origin already has."""
    tip = tree.source.writing().commit_of(f"refs/heads/{tree.branch}")
    return f"{tree.base} {tree.source.head()} {tip}"


def _packed(tree: Tree, objects: str, *steps: str, **values: str) -> tuple[str, str, bytes]:
    """Return the commit of a worktree's content, its HEAD, and a pack of what its origin lacks. Raises GitFailed."""
    changes = objects == SAVE
    reading, writing = ((), (tree.path,)) if changes else ((tree.path,), ())
    values = {"MESSAGE": f"Work of {tree.branch}", **values}
    said = _script(tree, objects, *steps, reading=reading, writing=writing, largest=PACK_BYTES, **values)
    if said.cut:
        raise GitFailed(f"what it changed is over {PACK_BYTES} bytes, packed")
    line, _, pack = said.output.partition(b"\n")
    commit, _, head = line.partition(b" ")
    if {len(commit), len(head)} != {len(tree.base)} or not set(commit + head) <= set(b"0123456789abcdef"):
        raise GitFailed("git did not say which commit it holds")
    return commit.decode(), head.decode(), b"" if pack[8:12] == bytes(4) else pack  # the number of objects


def _script(
    tree: Tree,
    *steps: str,
    reading: tuple[str, ...],
    writing: tuple[str, ...],
    largest: int = NAMES_BYTES,
    **values: str,
) -> Said:
    """Run a script on a worktree, in a sandbox with nothing else of the machine. Raises GitFailed."""
    try:
        mode = os.lstat(tree.git_dir).st_mode
    except OSError:
        raise GitFailed(f"there is no repository in {tree.path}") from None
    if not stat.S_ISDIR(mode):
        raise GitFailed("its .git is not its own directory any more")
    values |= {
        "TREE": tree.path,
        "FORMAT": format_of(tree.base),
        "OBJECTS": alternates(tree.borrowed),
        "MOST_BYTES": str(MOST_BYTES),
        "OWN_OBJECTS": _quoted(os.path.join(tree.git_dir, "objects")),
    }
    git = Git(tree.path, tree.git_dir, (*reading, *tree.borrowed), writing)
    return git.script(FRESH + OPEN + "".join(steps), values, largest=largest)


def _receive(tree: Tree, commit: str, pack: bytes, message: str) -> str:
    """Put a pack into the origin's repository and move the worktree's branch; return why the branch was not moved, if
    so.

    Every object of the pack is checked, that everything the commit refers to exists, and that none of its new
    directories is a repository. Raises GitFailed.
    """
    values = {
        "REPOSITORY": tree.source.common,
        "COMMIT": commit,
        "BASE": tree.base,
        "BRANCH": tree.branch,
        "MESSAGE": message,
    }
    return tree.source.writing().script(RECEIVE + IMPORT + CHECK_DIRECTORIES + MOVE, values, input=pack).line


def take_away(tree: Tree) -> None:
    """Remove a worktree that nobody has used, and its branch. Raises GitFailed."""
    with suppress(OSError):
        foreign_files.remove(tree.path)
    common = tree.source.common
    if not Path(common).is_dir():
        return
    with alone(common):
        for ref in (f"refs/heads/{tree.branch}", tree.kept_ref):
            tree.source.writing().run("update-ref", "-d", ref, tree.base, expect=(0, 1, 128))


def repository_of(linked: Tree) -> str:
    """Return the shared git directory of a worktree that is linked to its origin's repository. Raises GitFailed."""
    path = Path(linked.git_dir)
    back = first_line(path / "gitdir")
    if path.parent.name != "worktrees" or (back and os.path.normpath(back) != os.path.join(linked.path, ".git")):
        raise GitFailed(f"{path} is not the git directory of {linked.path}")
    return str(path.parents[1])


@contextmanager
def _at_work(tree: Tree) -> Iterator[None]:
    """Allow one call at a time on a worktree, and few on all of them. The next call waits for a moment, as after a turn
    the hub itself looks at it, and is refused then, so that it holds no thread for long.

    Raises GitFailed.
    """
    with _lock(tree.path) as is_free:
        _wait(is_free, PATIENCE_SECONDS, BUSY)
        with _few(tree.owner):
            yield


_at_work_for: Counter[str | None] = Counter()  # calls, by owner
_changed = threading.Condition()


@contextmanager
def _few(owner: str | None) -> Iterator[None]:
    """Limit the calls at work at once, of an owner and of all. Raises Busy if there are too many."""

    def has_room() -> bool:
        total = _at_work_for.total()
        return total < WITH_OPERATORS if owner is None else _at_work_for[owner] < SHARE and total < AT_ONCE

    with _changed:
        if not _changed.wait_for(has_room, TIME_LIMIT_SECONDS):
            raise Busy("other calls are at work on other worktrees; call again in a moment")
        _at_work_for[owner] += 1
    try:
        yield
    finally:
        with _changed:
            _at_work_for[owner] -= 1
            _changed.notify_all()


@contextmanager
def alone(repository: str) -> Iterator[None]:
    """Allow one process of this home at a time to change a repository: if two merged at once, git would refuse one.
    Raises GitFailed if the lock stays taken."""
    with _lock(repository) as is_free:
        _wait(is_free, LOCK_SECONDS, "another process keeps its repository locked")
        yield


def _wait(is_free: Callable[[], bool], seconds: float, why_not: str) -> None:
    """Wait until a lock is taken. Raises Busy."""
    deadline = time.monotonic() + seconds
    while not is_free():
        if time.monotonic() > deadline:
            raise Busy(why_not)
        time.sleep(LOOK_SECONDS)


@contextmanager
def _lock(path: str) -> Iterator[Callable[[], bool]]:
    """Open a lock for a path, in the hub's own home. Yields a function that takes it and returns whether it could."""
    locks = Path(protected_paths.home(), FOLDER, LOCKS)
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(os.fsencode(path)).hexdigest()[:32]
    held = os.open(locks / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def is_free() -> bool:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        yield is_free
    finally:
        os.close(held)


def format_of(commit: str) -> str:
    """Return the object format of a repository, by one of its ids."""
    return "sha1" if len(commit) == 40 else "sha256"


def alternates(paths: tuple[str, ...]) -> str:
    """Return directories in the form of GIT_ALTERNATE_OBJECT_DIRECTORIES."""
    return ":".join(_quoted(path) for path in paths)


def _quoted(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _names(output: bytes) -> list[str]:
    return [name for name in output.decode(errors="replace").split("\0") if name]
