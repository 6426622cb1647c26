"""A plain git remote: push a branch to it, and watch one of its branches.

git runs as for other forges: in a sandbox, in an empty repository of ours that borrows the project's objects. It logs
in as the operator's own configuration says. A remote that is a path may have been written by agents, and its hooks run
when something is pushed: there git has no network and none of the operator's files.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from nexus.control.runners import git, sandbox
from nexus.control.runners.git import ANY_CODE, NEUTRAL, PROTOCOLS, Git, GitFailed, Step
from nexus.control.runners_file import is_remote
from nexus.control.worktrees import trees
from nexus.forges.protocol import ForgeError, NotThere, Watched

MAX_WORK = 100  # pushed branches that are compared with the watched one in one look
MAX_KNOWN = 200  # branches of the project, so that only what it lacks is fetched
MERGE = ("merge-tree", "--write-tree")


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
    _git(origin, remote, git.format_of(commit), writing=True).run(
        "push", "--quiet", "--no-verify", remote, f"{commit}:refs/heads/{branch}"
    )


def compare(
    root: str, remote: str, branch: str | None, old: str, heads: Sequence[str], *, is_fresh: bool
) -> Watched | None:
    """Compare a branch of the remote, by default that of its HEAD, with its commit at the last look, and with heads of
    pushed work. Return None if it did not move, unless work `is_fresh`: not compared yet. Raises ForgeError."""
    ref = "HEAD" if branch is None else f"refs/heads/{branch}"
    try:
        origin = git.origin_of(root, is_shown=False)
        said = _git(origin, remote, "sha1").run("ls-remote", "--quiet", remote, ref)
        lines = said.output.decode(errors="replace").splitlines()
        found = [line.split("\t")[0] for line in lines if line.partition("\t")[2] == ref]
        if not found:
            raise NotThere(f"the remote has no branch {branch}" if branch else "the remote has no commit")
        if found[0] == old and not is_fresh:
            return None
        if not heads:
            return Watched(found[0])
        return _compared(origin, remote, ref, git.format_of(found[0]), heads)
    except GitFailed as error:
        raise ForgeError(" ".join(str(error).split())[-200:]) from None


def _compared(origin: git.Origin, remote: str, ref: str, format: str, heads: Sequence[str]) -> Watched:
    """Fetch a branch of the remote, and look which work is in it. Work that was squashed is in it, too: to merge it
    would change nothing. Raises GitFailed."""
    listed = ("for-each-ref", f"--count={MAX_KNOWN}", "--sort=-committerdate", "--format=%(objectname)")
    known = set(origin.git().line(*listed).split())
    new = "refs/watched"
    said = _git(origin, remote, format).steps(
        *(Step("update-ref", f"refs/known/{each}", each) for each in known),
        Step("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", remote, f"+{ref}:{new}"),
        Step("rev-parse", f"{new}^{{commit}}", f"{new}^{{tree}}"),
        *(Step("merge-base", "--is-ancestor", head, new, expect=ANY_CODE) for head in heads),
        *(Step(*MERGE, new, head, expect=ANY_CODE) for head in heads),
    )[len(known) + 1 :]
    commit, content = said[0].line.split()
    is_in = dict(zip(heads, said[1:], strict=False))
    makes = dict(zip(heads, said[1 + len(heads) :], strict=True))
    return Watched(
        commit, frozenset(each for each in heads if is_in[each].code == 0 or makes[each].line.split("\n")[0] == content)
    )


def _git(origin: git.Origin, remote: str, format: str, *, writing: bool = False) -> Git:
    """Return git in an empty repository that borrows the project's objects, and that reaches the remote. Raises
    GitFailed."""
    config = {**NEUTRAL, "transfer.fsckObjects": "true"}
    apart = Git(
        *(origin.common, "", origin.objects),
        apart=format,
        borrowed=origin.objects,
        config=config,
        largest_file=trees.PACK_BYTES,
    )
    if not Path(remote).is_absolute():
        del config["core.sshCommand"]
        return replace(apart, as_operator=True, files=git.login_files(), network=True, protocols=":".join(PROTOCOLS))
    if not sandbox.state().works:
        raise GitFailed(f"a path needs a sandbox, because of its hooks: {sandbox.state().why}")
    if writing:
        return replace(apart, writing=(remote,), protocols="file")
    return replace(apart, reading=(*origin.objects, remote), protocols="file")
