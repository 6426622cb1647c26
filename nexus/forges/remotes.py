"""A plain git remote: push a branch to it, and watch one of its branches.

git runs as for other forges: in a sandbox, in an empty repository of ours that borrows the project's objects. It logs
in as the operator's own configuration says. A remote that is a path may have been written by agents, and its hooks run
when something is pushed: there git has no network and none of the operator's files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from nexus.control.runners import git, sandbox
from nexus.control.runners.git import NEUTRAL, OPERATORS_CONFIG, PROTOCOLS, Git, GitFailed
from nexus.control.runners_file import is_remote
from nexus.control.worktrees import trees
from nexus.forges.protocol import ForgeError, NotThere, Watched

MAX_WORK = 100  # pushed branches that are compared with the watched one in one look
MAX_KNOWN = 200  # branches of the project, so that only what it lacks is fetched
EMPTY = """
mkdir -p "$SCRATCH"
git init --quiet --bare --template= --initial-branch=none --object-format="$FORMAT" "$SCRATCH/git"
export GIT_DIR="$SCRATCH/git" GIT_ALTERNATE_OBJECT_DIRECTORIES="$OBJECTS"
"""
PUSH = 'git push --quiet --no-verify "$REMOTE" "$COMMIT:refs/heads/$BRANCH"\n'
ASK = 'git ls-remote --quiet "$REMOTE" "$REF"\n'
# Prints the commit, and which work is in it. Work that was squashed counts as merged, too: to merge it would change
# nothing.
FETCH = """
ulimit -f "$BLOCKS"
for known in $KNOWN; do
    if git cat-file -e "$known^{commit}" 2>/dev/null; then git update-ref "refs/known/$known" "$known"; fi
done
git -c transfer.fsckObjects=true fetch --quiet --no-tags --no-write-fetch-head "$REMOTE" "+$REF:refs/watched"
new=$(git rev-parse --verify 'refs/watched^{commit}')
printf '%s\\n' "$new"
content=$(git rev-parse "$new^{tree}")
for head in $HEADS; do
    if git merge-base --is-ancestor "$head" "$new" 2>/dev/null ||
        [ "$(timeout 5 git merge-tree --write-tree "$new" "$head" 2>/dev/null)" = "$content" ]; then
        printf '%s ' "$head"
    fi
done
"""


def address_of(text: str) -> str:
    """Return a remote as git reaches it: an address, or the real path of a directory. Raises ValueError."""
    if is_remote(text, PROTOCOLS):
        return text
    parts = urlsplit(text)
    path = parts.path if parts.scheme == "file" and not parts.netloc else text
    if not Path(path).is_absolute():
        raise ValueError("must be an http, https or ssh address, or an absolute path")
    if not Path(path, "objects").is_dir() and not Path(path, ".git", "objects").is_dir():
        raise ValueError("leads to no git repository")
    return os.path.realpath(path)


def push(origin: git.Origin, commit: str, branch: str, remote: str) -> None:
    """Push a commit as a branch. Never by force. Raises GitFailed."""
    _run(origin, remote, EMPTY + PUSH, {"FORMAT": _format(commit), "COMMIT": commit, "BRANCH": branch}, writing=True)


def look(
    root: str, remote: str, branch: str | None, old: str, heads: Sequence[str], *, is_fresh: bool
) -> Watched | None:
    """Compare a branch of the remote, by default that of its HEAD, with its commit at the last look, and with heads of
    pushed work. Return None if it did not move, unless work `is_fresh`: not compared yet. Raises ForgeError."""
    ref = "HEAD" if branch is None else f"refs/heads/{branch}"
    try:
        origin = git.origin_of(root, is_shown=False)
        lines = _run(origin, remote, ASK, {"REF": ref}).decode(errors="replace").splitlines()
        found = [line.split("\t")[0] for line in lines if line.partition("\t")[2] == ref]
        if not found:
            raise NotThere(f"the remote has no branch {branch}" if branch else "the remote has no commit")
        if found[0] == old and not is_fresh:
            return None
        if not heads:
            return Watched(found[0])
        listed = ("for-each-ref", f"--count={MAX_KNOWN}", "--sort=-committerdate", "--format=%(objectname)")
        values = {
            "FORMAT": _format(found[0]),
            "REF": ref,
            "HEADS": " ".join(heads),
            "KNOWN": origin.reading().line(*listed).replace("\n", " "),
            "BLOCKS": str(trees.PACK_BYTES // 512),
        }
        said = _run(origin, remote, EMPTY + FETCH, values)
    except GitFailed as error:
        raise ForgeError(" ".join(str(error).split())[-200:]) from None
    commit, *merged = said.decode().split()
    return Watched(commit, frozenset(merged))


def _format(commit: str) -> str:
    return "sha1" if len(commit) == 40 else "sha256"


def _run(origin: git.Origin, remote: str, script: str, values: Mapping[str, str], *, writing: bool = False) -> bytes:
    """Run a script that calls the remote, and return its output. Raises GitFailed."""
    config = {name: value for name, value in NEUTRAL.items() if not name.startswith("protocol.")}
    env = {"REMOTE": remote, "OBJECTS": trees.alternates(origin.objects), **values}
    reading: tuple[str, ...] = origin.objects
    writable: tuple[str, ...] = ()
    files = git.login_files()
    if is_path := Path(remote).is_absolute():
        if not sandbox.state().works:
            raise GitFailed(f"a path needs a sandbox, because of its hooks: {sandbox.state().why}")
        env["GIT_ALLOW_PROTOCOL"] = "file"
        reading, writable, files = (reading, (remote,), ()) if writing else ((*reading, remote), (), ())
    else:
        config = {name: value for name, value in config.items() if name != "core.sshCommand"}
        script = OPERATORS_CONFIG + script
        env |= {"GIT_ALLOW_PROTOCOL": ":".join(PROTOCOLS), **git.login()}
    repository = Git(origin.common, origin.common, reading, writable, files, config, network=not is_path)
    said = repository.script(script, env)
    if said.cut:
        raise GitFailed("the remote's answer is too long")
    return said.output
