"""The check of git's hooks: whether a commit or a push touches what another agent holds. Standard library only."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from nexus.core.processes import CHUNK, NEUTRAL, in_foreground, own_environment, python, run
from nexus.core.time_limit import time_limit
from nexus.reservations.guard import repository, words
from nexus.reservations.guard.holdings import Unreadable, opened
from nexus.reservations.guard.repository import Repository

if TYPE_CHECKING:
    from nexus.reservations.guard.held import HeldFile

OVERRIDE_SECONDS = 120  # to record an override
REFUSAL_SECONDS = 10  # to record a refusal, which counts in any case
TIME_LIMIT_SECONDS = 5  # after that, the check counts as failed
REFUSED, INTERRUPTED = 1, 130
OVERRIDE, AGENT = "NEXUS_OVERRIDE", "NEXUS_AGENT_ID"
PRE_PUSH, POST_COMMIT = "pre-push", "post-commit"
VERBS = {  # by hook; git runs pre-commit neither for a merge that it makes alone, nor for `git am`
    "pre-commit": "commit",
    "pre-merge-commit": "commit",
    "pre-applypatch": "commit",
    PRE_PUSH: "push",
    POST_COMMIT: "commit",
}
CHECK = "check"  # instead of a hook's name
AROUND = "NEXUS_GUARD"  # names the hook that runs, for the one that was there before: pre-commit's framework runs ours
CHANGED, UNPUSHED = "--changed", "--unpushed"  # what `check` looks at, instead of the staged files


def main(arguments: Sequence[str]) -> int:
    """Return a hook's exit code. The arguments are the hook's name (or `check`, which changes and records nothing), the
    hook that was there before, the store, what to do when the store cannot be read (`open` or `closed`), the flags
    with which `nexus` finds it, and git's own arguments."""
    name, kept, store, unreadable, flags, *given = arguments
    is_hook, passed = name in VERBS, name == POST_COMMIT
    verb = VERBS[name] if is_hook else "push" if UNPUSHED in given else "commit"
    try:
        with time_limit(TIME_LIMIT_SECONDS):  # a hook manager may leave its own input open
            text = sys.stdin.buffer.read() if name == PRE_PUSH else None
        here = f"{name} {os.path.realpath(os.curdir)}"
        if os.environ.get(AROUND) == here:
            return 0  # the hook around this one checks
        os.environ[AROUND] = here
        if code := _run_former_hook(kept, given, text):
            return code
        with time_limit(TIME_LIMIT_SECONDS):
            changed = _changes(name, text, given)
            agent_id, conflicts, recorded = _conflicts(store, changed, os.environ, flags, passed=passed)
        reason = os.environ.get(OVERRIDE, "").strip() if is_hook and agent_id is None else ""
        if conflicts and reason:
            return 0 if passed else _override(verb, reason, flags, conflicts)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Unreadable, OSError) as error:  # includes TimeoutError
        why, closed = " ".join(str(error).split()), unreadable == "closed"
        words.say(words.unanswered(why, closed=closed, verb=verb))
        if is_hook:
            _record_unchecked(verb, flags, why, closed=closed)
        return REFUSED if closed else 0
    if not conflicts:
        return 0
    words.say(words.passed(conflicts) if passed else words.refusal(verb, agent_id, conflicts))
    if is_hook and not recorded:
        _record_refusal(verb, flags, agent_id, conflicts, passed=passed)
    return REFUSED


def _run_former_hook(hook: str, given: Sequence[str], text: bytes | None) -> int:
    """Return the exit code of the hook that was there before. It runs first, because it may change what is
    committed."""
    if not (hook and os.access(hook, os.X_OK)):
        return 0
    code: int
    try:
        code = in_foreground([hook, *given], input=text).code
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            words.say(words.unrun(hook, str(error.strerror)))
            return REFUSED
        code = in_foreground(["sh", hook, *given], input=text).code  # like git for a script without an interpreter line
    return code if code >= 0 else 128 - code


def _conflicts(
    store: str, changed: Callable[[Repository], list[str]], environ: Mapping[str, str], flags: str, *, passed: bool
) -> tuple[str | None, list[HeldFile], bool]:
    """Return the agent that commits, the changed files that others hold, and whether the store has a refusal for them.
    Raises Unreadable."""
    here = repository.at(os.path.realpath(os.curdir), os.environ.get("GIT_DIR", ".git"))
    with opened(store) as held:
        projects = held.projects(here)
        if not projects:
            return None, [], False  # nearly always: git is not needed
        paths, agents = changed(here), _agents(environ, _home(flags), [here.top, *projects.values()])
        # Agents that share a client's process cannot be told apart: what one of them holds, the others may commit.
        each = [(agent_id, held.conflicts(here, projects, agent_id, paths)) for agent_id in agents]
        agent_id, conflicts = min(each, key=lambda found: len(found[1]))
        return agent_id, conflicts, bool(conflicts) and held.has_recorded(agent_id, conflicts, passed=passed)


def _agents(environ: Mapping[str, str], home: str, roots: Sequence[str]) -> Sequence[str | None]:
    """Return who commits: the environment or the work tree says it, or the client whose shell this is; None is a
    person. An agent that no file of its client names has the id that `nexus setup` gives it in one of the roots."""
    if environ.get(AGENT) == "":
        return [None]
    from pathlib import Path

    from nexus.hooks import client_processes  # rarely needed

    agents = client_processes.agents_here(Path(home))
    if AGENT in environ:  # a client's hook may have set it before the agent joined by another name
        return [environ[AGENT], *agents]
    said = in_foreground(["git", "config", "--get", "nexus.agent"], captured=True)
    if named := os.fsdecode(said.output).strip():
        return [named]
    if agents:
        return agents
    client = client_processes.client_of_shell(environ)
    if client is None:
        return [None]
    from nexus.hooks.harness import derived_id

    return [derived_id(client, root, Path(home)) for root in roots]


def _home(flags: str) -> str:
    """Return the home, from the flags with which `nexus` finds the store."""
    import shlex

    given = shlex.split(flags)
    return os.path.expanduser(given[given.index("--home") + 1] if "--home" in given else "~/.nexus")  # noqa: PTH111


def _changes(name: str, text: bytes | None, given: Sequence[str]) -> Callable[[Repository], list[str]]:
    """Return the function that finds the paths to look at; `text` is git's input to a pre-push hook."""
    if text is not None:
        return _pushed(text)
    if name == POST_COMMIT:
        return _committed
    if UNPUSHED in given:
        return lambda _: _names("log", *EVERY_COMMIT, *NAMES, "HEAD", "--not", "--remotes")
    return _changed if CHANGED in given else _staged


def _committed(_: Repository) -> list[str]:
    """Return the paths that the latest commit changes; where it amends another, those that differ from that, too."""
    before = "HEAD@{1}"
    paths = _names("log", "-1", *EVERY_COMMIT, *NAMES)
    if in_foreground(["git", "rev-parse", "--verify", "--quiet", before], captured=True).code:
        return paths  # the first commit, or git keeps no such record
    changed = set(_names("diff", *NAMES, before, "HEAD"))
    return [path for path in paths if path in changed]


def _changed(here: Repository) -> list[str]:
    """Return the paths that a commit may change once something is staged; in the top directory."""
    listed = _git("ls-files", "-z", "--modified", "--others", "--exclude-standard")
    return [*_staged(here), *filter(None, os.fsdecode(listed).split("\0"))]


def _staged(here: Repository) -> list[str]:
    """Return the paths that the commit changes, both of a rename; of a merge, those that differ from both sides."""
    paths = _names("diff", "--cached", *NAMES)
    for side in here.merged():
        theirs = set(_names("diff", "--cached", *NAMES, side))
        paths = [path for path in paths if path in theirs]
    return paths


def _pushed(text: bytes) -> Callable[[Repository], list[str]]:
    """Return a function that finds the paths changed by commits which no remote has yet; `text` is git's input to its
    hook."""
    revisions, excluded = [], []
    for line in os.fsdecode(text).splitlines():
        fields = line.rsplit(" ", 3)  # a revision may contain spaces, such as HEAD^{/fix it}
        if len(fields) != 4:
            raise Unreadable("pre-push was not called as git calls it")
        local, remote = fields[1], fields[3]
        if local.strip("0"):  # otherwise a branch is deleted
            revisions.append(local)
            excluded += [f"^{remote}"] if remote.strip("0") else []

    def changed(_: Repository) -> list[str]:
        trees, others = _trees(revisions)
        paths = [path for tree in trees for path in _paths_below(tree)]
        if others:
            wanted = "\n".join([*others, *excluded, ""]).encode()
            paths += _names("log", *EVERY_COMMIT, *NAMES, "--stdin", "--not", "--remotes", text=wanted)
        return paths

    return changed


def _trees(revisions: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split what is pushed into trees, also below tags, and revisions whose changes `git log` shows."""
    asked = "".join(f"{revision}^{{}}\n" for revision in revisions).encode()
    kinds = _git("cat-file", "--batch-check=%(objecttype) %(objectname)", text=asked).decode().splitlines()
    trees = [kind.partition(" ")[2] for kind in kinds if kind.startswith("tree ")]
    commits = [each for each, kind in zip(revisions, kinds, strict=True) if not kind.startswith(("tree ", "blob "))]
    return trees, commits  # a blob has no path that an agent could hold


def _paths_below(tree: str) -> list[str]:
    """Return every path of a tree, a submodule's with a trailing slash: without a history, each may have changed."""
    rows = os.fsdecode(_git("ls-tree", "-r", "-z", "--full-tree", tree)).split("\0")
    split = [row.split("\t", 1) for row in rows if row]
    return [f"{path}/" if about.startswith(SUBMODULE) else path for about, path in split]


# Overrides whatever the repository's configuration adds to git's output, or leaves out.
EVERY_COMMIT = ("--format=", "-c", "--root", "--no-show-signature", "--ignore-missing")
NAMES = (
    "--raw",
    "-z",
    "--no-renames",
    "--no-relative",
    "--ignore-submodules=none",
    "--no-ext-diff",
    "--no-color",
)
SUBMODULE = "160000"  # its mode


def _names(*arguments: str, text: bytes | None = None) -> list[str]:
    """Return the paths in git's output, a submodule's with a trailing slash."""
    done = _git(*arguments, text=text)
    entries = iter([each for each in os.fsdecode(done).split("\0") if each])
    # Modes and hashes come first, then the path; for a submodule, everything in it changes.
    return [f"{path}/" if _moves(about) else path for about, path in zip(entries, entries, strict=True)]


def _git(*arguments: str, text: bytes | None = None) -> bytes:
    """Return git's output. Raises Unreadable."""
    done = in_foreground(["git", *arguments], input=text, captured=True)
    if done.code:
        raise Unreadable(f"git {arguments[0]} failed: {os.fsdecode(done.errors)[:300]}")
    return done.output


def _moves(about: str) -> bool:
    """Return whether git's entry is a submodule, by one of the modes between the colons and the hashes."""
    return SUBMODULE in about and SUBMODULE in about.lstrip(":").split()


def _override(verb: str, reason: str, flags: str, conflicts: Sequence[HeldFile]) -> int:
    """Return the exit code of a commit or push for which a person overrides the guard; it must be recorded."""
    if why := _recorded("override", verb, flags, conflicts, OVERRIDE_SECONDS, reason=_text(reason)):
        words.say(words.unrecorded(verb, why))
        return REFUSED
    words.say(words.overridden(verb, conflicts))
    return 0


def _record_refusal(
    verb: str, flags: str, agent_id: str | None, conflicts: Sequence[HeldFile], *, passed: bool
) -> None:
    """Let the operators see the refusal, or what passed the guard. It counts whether or not it can be recorded."""
    try:
        about = {"agent_id": agent_id and _text(agent_id), "passed": passed}
        why = _recorded("refused", verb, flags, conflicts, REFUSAL_SECONDS, **about)
    except KeyboardInterrupt:
        return
    if why:
        words.say(words.unseen(why))


def _record_unchecked(verb: str, flags: str, why: str, *, closed: bool) -> None:
    """Let the operators see what was refused, or passed, without a check, by a file in the home: the store cannot take
    it."""
    from pathlib import Path

    from nexus.hooks import hook_state

    home, root = _home(flags), os.path.realpath(os.curdir)
    try:
        agent_id = _agents(os.environ, home, [root])[0]
        what = {"refused": verb} if closed else {"passed": verb}
        hook_state.record_fault(Path(home), _text(agent_id or ""), _text(root), _text(why)[:300], **what)
    except KeyboardInterrupt:
        return
    except OSError as error:
        words.say(words.unseen(str(error)))


def _recorded(
    what: str, verb: str, flags: str, conflicts: Sequence[HeldFile], seconds: int, **about: str | bool | None
) -> str:
    """Have `nexus guard` record what happened; return why it could not, else the empty string."""
    import json
    import shlex

    command = python("nexus_site", "guard", what, "--verb", verb, *shlex.split(flags))
    happened = {
        "paths": [words.plain(each.path) for each in conflicts],
        "reservation_ids": [each.holding.reservation_id for each in conflicts],
        **about,
    }
    try:
        done = run(
            command,
            cwd=NEUTRAL,
            env=own_environment(),
            input=json.dumps(happened).encode(),
            seconds=seconds,
            largest=CHUNK,
        )
    except OSError as error:  # includes TimeoutError
        return str(error)
    return (done.errors.decode(errors="replace") or f"exit code {done.code}") if done.code else ""


def _text(given: str) -> str:
    return os.fsencode(given).decode(errors="replace")
