"""What git's hooks ask: whether a commit or a push touches what another agent holds. Standard library alone."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from core.patience import patience
from files.guard import repository, words
from files.guard.holdings import Unreadable, opened
from files.guard.repository import Repository

if TYPE_CHECKING:
    from files.guard.held import Conflict

PATIENCE_SECONDS = 5  # then the question counts as not answered
REFUSED, INTERRUPTED = 1, 130
OVERRIDE, AGENT = "NEXUS_OVERRIDE", "NEXUS_AGENT_ID"
PRE_COMMIT = "pre-commit"
VERBS = {PRE_COMMIT: "commit", "pre-push": "push"}


def main(arguments: Sequence[str]) -> int:
    """A hook's exit code. The arguments: the hook's name, the hook that was there before, the store, what to do when it
    cannot be read (`open` or `closed`), the flags that lead `nexus` there, and what git gives its hook."""
    name, kept, store, unreadable, flags, *given = arguments
    verb = VERBS[name]
    try:
        text = sys.stdin.buffer.read() if name != PRE_COMMIT else None
        if code := _kept(kept, given, text):
            return code
        with patience(PATIENCE_SECONDS):
            agent_id, conflicts = _conflicts(store, _pushed(text) if text is not None else _staged, os.environ)
        said = _decided(verb, os.environ.get(OVERRIDE, "").strip(), flags, agent_id, conflicts)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Unreadable, OSError) as error:  # a TimeoutError among them
        words.say(words.unanswered(" ".join(str(error).split()), closed=unreadable == "closed", verb=verb))
        return REFUSED if unreadable == "closed" else 0
    words.say(said)
    return REFUSED if said else 0


def _kept(hook: str, given: Sequence[str], text: bytes | None) -> int:
    """The exit code of the hook that was there before; it may change what is committed, so it comes first."""
    if not (hook and os.access(hook, os.X_OK)):
        return 0
    code: int
    try:
        code = _run([hook, *given], input=text).returncode
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            words.say(words.unrun(hook, str(error.strerror)))
            return REFUSED
        code = _run(["sh", hook, *given], input=text).returncode  # as git does with a script that names no interpreter
    return code if code >= 0 else 128 - code


def _conflicts(
    store: str, changed: Callable[[Repository], list[str]], environ: Mapping[str, str]
) -> tuple[str | None, list[Conflict]]:
    """Who commits, and what of the changed files others hold. Raises Unreadable."""
    here = repository.at(os.path.realpath(os.curdir))
    with opened(store) as held:
        projects = held.projects(here)
        if not projects:
            return None, []  # as nearly always: git need not be asked
        agent_id = _agent(environ)
        return agent_id, held.conflicts(here, projects, agent_id, changed(here))


def _decided(verb: str, reason: str, flags: str, agent_id: str | None, conflicts: Sequence[Conflict]) -> str:
    """Why it is refused; the empty string when it is not."""
    if not conflicts:
        return ""
    if reason and agent_id is None:
        return _override(verb, reason, flags, conflicts)
    return words.refusal(verb, agent_id, conflicts)


def _agent(environ: Mapping[str, str]) -> str | None:
    """Who commits: the environment says it, or the work tree; None is a person."""
    if AGENT in environ:
        return environ[AGENT] or None
    said = _run(["git", "config", "--get", "nexus.agent"], capture_output=True)
    return os.fsdecode(said.stdout).strip() or None


def _staged(here: Repository) -> list[str]:
    """The paths that the commit changes, both of a rename; of a merge those that are not as one side has them."""
    paths = _names("diff", "--cached", *NAMES)
    for side in here.merged():
        theirs = set(_names("diff", "--cached", *NAMES, side))
        paths = [path for path in paths if path in theirs]
    return paths


def _pushed(text: bytes) -> Callable[[Repository], list[str]]:
    """The paths that commits change which no remote has yet, as a function; `text` is what git tells its hook."""
    revisions = []
    for line in os.fsdecode(text).splitlines():
        told = line.rsplit(" ", 3)  # what is pushed may be named with spaces, as HEAD^{/fix it} is
        if len(told) != 4:
            raise Unreadable("pre-push was not called as git calls it")
        local, remote = told[1], told[3]
        if local.strip("0"):  # else a branch is deleted
            revisions += [local, *([f"^{remote}"] if remote.strip("0") else [])]

    def changed(_: Repository) -> list[str]:
        if not revisions:
            return []
        listed = "\n".join([*revisions, ""]).encode()
        return _names("log", *EVERY_COMMIT, *NAMES, "--stdin", "--not", "--remotes", text=listed)

    return changed


# Whatever the repository's own configuration has git show beside, or leave out.
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
    """The paths that git tells of, a submodule's with a slash at its end."""
    done = _run(["git", *arguments], input=text, capture_output=True)
    if done.returncode:
        raise Unreadable(f"git {arguments[0]} failed: {os.fsdecode(done.stderr)[:300]}")
    told = iter([each for each in os.fsdecode(done.stdout).split("\0") if each])
    # Modes and the like come first, then the path; of a submodule whatever is in it changes.
    return [f"{path}/" if _moves(about) else path for about, path in zip(told, told, strict=True)]


def _moves(about: str) -> bool:
    """Whether git tells of a submodule, by one of the modes between the colons and the hashes."""
    return SUBMODULE in about and SUBMODULE in about.lstrip(":").split()


def _run(command: list[str], **how: Any) -> Any:
    import subprocess  # a quarter of the time of a hook that finds nothing held

    return subprocess.run(command, check=False, **how)  # noqa: S603  # git, or what was installed


def _override(verb: str, reason: str, flags: str, conflicts: Sequence[Conflict]) -> str:
    """Record that a person goes on all the same; why it could not be recorded, else the empty string."""
    import json
    import shlex

    code = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    command = [sys.executable, "-m", "nexus_site", "guard", "override", "--verb", verb, *shlex.split(flags)]
    told = {
        "reason": os.fsencode(reason).decode(errors="replace"),
        "paths": [words.plain(each.path) for each in conflicts],
        "reservation_ids": [each.holding.reservation_id for each in conflicts],
    }
    environ = {**os.environ, "PYTHONPATH": code}
    done = _run(command, input=json.dumps(told), env=environ, capture_output=True, text=True)
    if done.returncode:
        return words.unrecorded(verb, done.stderr)
    words.say(words.overridden(verb, conflicts))
    return ""
