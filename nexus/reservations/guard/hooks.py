"""Installation of git's hooks in a repository. Existing hooks still run, and removal restores them."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from nexus.core import files, foreign_files
from nexus.core.operations.errors import Code, NexusError
from nexus.core.processes import CHUNK, operators_git, run
from nexus.reservations.guard import check
from nexus.reservations.guard.repository import linked_trees, main_tree, runs_check

NAMES = tuple(check.VERBS)
KEPT = ".before-nexus"  # suffix of a hook that was there before
MARK = re.compile(rb"#!/bin/sh\n# Set by `nexus guard install` \(sha256:([0-9a-f]{64})\)[^\n]*\n")
MANAGERS = ("husky", "lefthook")  # programs that write their hooks over existing ones
BY_HAND = "by hand"
GUARDING = ("installed", BY_HAND)  # the states of a hook that runs the check
UNCHANGED = " Nothing was changed."
CHECK = Path(__file__).with_name("run.py")
TIME_LIMIT_SECONDS = 30


@dataclass(frozen=True)
class Hook:
    """One hook of a repository in its current state."""

    file: Path
    content: bytes | None  # None where there is no hook
    state: str  # installed, edited, by hand (it runs the check), other, none
    keeps: bool  # whether there is another program's hook that ours runs


@dataclass(frozen=True)
class HooksDirectory:
    """The directory of a repository's hooks, and those of its submodules."""

    directory: Path
    own: bool  # whether it is in the git directory, where nobody else's files are
    scope: str  # where `core.hooksPath` is set; empty where it is not
    guards: Path  # the one in the git directory, where git does not look now if it is another
    submodules: tuple[HooksDirectory, ...] = ()
    left_out: tuple[str, ...] = ()  # a sentence for each work tree and submodule that is not guarded, and why

    @property
    def hooks(self) -> list[Hook]:
        """The hooks that are or should be the guard's. Raises CONFIG_ERROR where they cannot be read."""
        return [_look(each.directory / name) for each in (self, *self.submodules) for name in NAMES]

    @property
    def ours(self) -> list[Hook]:
        """The hooks that we installed. Raises CONFIG_ERROR where they cannot be read."""
        every = [_look(each.guards / name) for each in (self, *self.submodules) for name in NAMES]
        return [
            hook for hook in every if hook.state in ("installed", "edited") or (hook.content is None and hook.keeps)
        ]

    @property
    def is_left_to_others(self) -> bool:
        """Whether hooks that are not ours should run the check, and do not."""
        return not self.own and any(hook.state != BY_HAND for hook in self.hooks)

    @property
    def leads(self) -> str:
        """Where git finds the hooks instead of in the git directory, and why."""
        by = {"command": "this shell's environment", "": "a link"}.get(self.scope, self.scope)
        return f"core.hooksPath ({by}) leads to {self.directory}"


def hooks_directory(repository: str) -> HooksDirectory:
    """Return where git looks for the hooks of the repository at a path. Raises CONFIG_ERROR where there is none."""
    home = Path(os.path.realpath(os.path.join(repository, _git(repository, "rev-parse", "--git-common-dir"))))
    where = _find_hooks(repository, home)
    submodules, left_out = [], []
    # A linked work tree may have a configuration of its own, and so other hooks.
    configured = [(tree, home) for tree, own in linked_trees(str(home)) if os.path.lexists(f"{own}/config.worktree")]
    for tree, git_dir in (*configured, *_submodules(home)):
        if not Path(tree).is_dir():
            continue
        try:
            found = _find_hooks(tree, git_dir)
            why = "" if found.own else found.leads
            why = why or next(filter(None, map(_obstacle, found.hooks)), "")
        except NexusError as error:
            why = error.message.removesuffix(UNCHANGED)
        if why:
            left_out.append(f"{tree} is not guarded: {why.rstrip('.')}.")
        elif git_dir != home:
            submodules.append(found)
    return replace(where, submodules=tuple(submodules), left_out=tuple(left_out))


def _find_hooks(repository: str, home: Path) -> HooksDirectory:
    """Return where git looks for the hooks of a repository with this git directory."""
    directory = Path(os.path.realpath(os.path.join(repository, _git(repository, "rev-parse", "--git-path", "hooks"))))
    own = directory.is_relative_to(home)
    scope = "" if own else _git(repository, "config", "--show-scope", "--get", "core.hooksPath", wrong=None)
    return HooksDirectory(directory, own, scope.partition("\t")[0], directory if own else home / "hooks")


def _submodules(git_dir: Path) -> Iterator[tuple[str, Path]]:
    """Yield the submodules in each of a repository's work trees, with their git directories."""
    waiting = [git_dir / "modules", *git_dir.glob("worktrees/*/modules")]
    while waiting:
        directory = waiting.pop()
        for each in sorted(directory.iterdir()) if directory.is_dir() and not directory.is_symlink() else ():
            if (each / "HEAD").is_file():
                if tree := main_tree(str(each)):
                    yield tree, each
                yield from _submodules(each)
            else:
                waiting.append(each)  # a submodule's name may have slashes


def top(repository: str) -> str:
    """Return the work tree at a path. Raises CONFIG_ERROR where there is none."""
    return _git(repository, "rev-parse", "--show-toplevel")


def _git(repository: str, *arguments: str, wrong: str | None = "") -> str:
    """Return git's output; the empty string where git fails and `wrong` is None. Raises CONFIG_ERROR."""
    here = _named(repository)
    if not Path(repository).is_dir():
        raise _refused(f"There is no directory {here}")
    try:
        done = run(
            ["git", *arguments],
            cwd=repository,
            env=operators_git(),  # some shells empty core.hooksPath by GIT_CONFIG_COUNT
            seconds=TIME_LIMIT_SECONDS,
            largest=CHUNK,
        )
    except OSError as error:
        raise _refused(f"git cannot be started in {here} ({type(error).__name__})") from None
    if done.code and wrong is not None:
        said = " ".join(os.fsdecode(done.errors).split()).removeprefix("fatal: ")
        raise _refused(f"{here} is in no git repository that can be used ({said})")
    return os.fsdecode(done.output).removesuffix("\n")


def _named(repository: str) -> str:
    try:
        return os.path.abspath(repository)  # noqa: PTH100  # `.` tells nobody anything
    except OSError:
        return "the working directory, which is gone,"


def command(name: str, store: str, unreadable: str, flags: str, kept: str = "''") -> str:
    """Return the shell line that runs the check for the hook `name` against a store: a file's path, or a database's
    URL."""
    return f"{program()} {name} {kept} {shlex.quote(store)} {unreadable} {shlex.quote(flags)}"


def program() -> str:
    """Return the shell words that start the check."""
    return f"{shlex.quote(sys.executable)} -I -S {shlex.quote(str(CHECK))}"


def script(name: str, store: str, unreadable: str, flags: str) -> bytes:
    """Return a hook of ours. It may outlive Nexus, and must not block the repository then."""
    kept = f'"${{0%/*}}/{name}{KEPT}"'  # pre-commit's framework renames this hook, and runs it
    line = command(name, store, unreadable, flags, kept)
    body = f"""if [ -x {shlex.quote(sys.executable)} ] && [ -f {shlex.quote(str(CHECK))} ]; then
  exec {line} "$@"
fi
echo "[nexus] guard: Nexus is no longer where it was: nothing is checked. Install the guard again, or delete $0." >&2
[ ! -x {kept} ] || exec {kept} "$@"
"""
    body = f"# `nexus guard uninstall` takes it out, and puts back what was here before.\n{body}"
    content = os.fsencode(body)
    return b"#!/bin/sh\n# Set by `nexus guard install` (sha256:%s)\n%s" % (_hash(content).encode(), content)


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _look(file: Path) -> Hook:
    try:
        content = _content(file)
    except (FileNotFoundError, NotADirectoryError):
        content = None
    except OSError as error:
        raise _refused(f"{file} cannot be read ({error.strerror})") from None
    keeps = os.path.lexists(f"{file}{KEPT}")
    if content is None:
        return Hook(file, None, "none", keeps)
    mark = MARK.match(content)
    if mark is None:
        return Hook(file, content, BY_HAND if runs_check(str(file)) else "other", keeps)
    ours = _hash(content[mark.end() :]) == mark[1].decode()
    return Hook(file, content, "installed" if ours else "edited", keeps)


def _content(file: Path) -> bytes:
    """Return the content of a hook; of a link, where it leads: it is kept as it is. Raises OSError."""
    return os.fsencode(os.readlink(file)) if file.is_symlink() else foreign_files.read_file(str(file))  # noqa: PTH115


def install(repository: str, store: str, unreadable: str, flags: str) -> list[Path]:
    """Install the hooks; return those that changed. An existing hook is kept under another name, and runs first.

    Raises CONFIG_ERROR, with nothing changed, where the hooks are shared with other repositories or a file is in
    the way.
    """
    where = hooks_directory(repository)
    if not where.own:
        if not where.is_left_to_others:
            return []
        raise _refused(
            f"{where.leads}, and these hooks are a hook manager's, or not of this repository alone. "
            f"{_by_hand(store, unreadable, flags)}"
        )
    wanted = {hook: script(hook.file.name, store, unreadable, flags) for hook in where.hooks if hook.state != BY_HAND}
    for hook in wanted:
        if why := _obstacle(hook):
            add = _by_hand(store, unreadable, flags, _manager(hook) or "")
            raise _refused(f"{why}. {add}" if _manager(hook) else why)
    changed = {hook: content for hook, content in wanted.items() if hook.content != content}
    done: list[Hook] = []
    try:
        for hook, content in changed.items():
            hook.file.parent.mkdir(exist_ok=True)
            if hook.state == "other":
                _keep(hook)
            done.append(hook)
            files.replace(hook.file, content, mode=0o755)
    except OSError as error:
        for hook in done:
            _put_back(hook)
        raise _refused(f"{where.directory} cannot be written ({type(error).__name__})") from None
    return [hook.file for hook in changed]


def _by_hand(store: str, unreadable: str, flags: str, manager: str = "") -> str:
    lines = "".join(f'\n  {name}: {command(name, store, unreadable, flags)} "$@"' for name in NAMES)
    if manager == "lefthook":
        how = "Add these to its hooks in lefthook.yml, each as a job's `run`, that of pre-push with `use_stdin: true`"
    else:
        how = "Make this the last line of its own hooks"
    return f"{how}:{lines}\nThen the guard is there"


def _manager(hook: Hook) -> str | None:
    content = (hook.content or b"").lower() if hook.state == "other" else b""
    return next((name for name in MANAGERS if name.encode() in content), None)


def _obstacle(hook: Hook) -> str:
    """Return why ours cannot be written; the empty string where it can."""
    if hook.state == "edited":
        return (
            f"{hook.file} was changed by hand since it was installed. Keep your lines elsewhere, or as "
            f"{hook.file.name}{KEPT}, which ours runs; then delete it and run this again"
        )
    if manager := _manager(hook):
        return f"{hook.file} is {manager}'s, which writes it again"
    kept = Path(f"{hook.file}{KEPT}")
    if hook.state == "other" and hook.keeps and not _same(hook.file, kept):
        return f"{hook.file} and {kept.name} next to it are both of other programs. Leave the one that counts"
    return ""


def _same(file: Path, kept: Path) -> bool:
    """Return whether a hook was kept already, by an installation that was interrupted."""
    try:
        return file.is_symlink() == kept.is_symlink() and _content(file) == _content(kept)
    except OSError:
        return False


def _keep(hook: Hook) -> None:
    """Copy the content that was checked to the kept file; never overwrite another file. Raises OSError."""
    kept = Path(f"{hook.file}{KEPT}")
    if hook.keeps:
        return
    if hook.file.is_symlink():
        kept.symlink_to(os.readlink(hook.file))  # noqa: PTH115
        return
    assert hook.content is not None, "one of another's making is there"
    with files.draft(kept) as draft:
        draft.write_bytes(hook.content)
        draft.chmod(stat.S_IMODE(hook.file.stat().st_mode))
        files.publish(draft, kept)


def _put_back(hook: Hook) -> None:
    """Undo an incomplete installation of one hook."""
    kept = Path(f"{hook.file}{KEPT}")
    if hook.state == "other":
        kept.replace(hook.file)
    elif hook.content is None:
        hook.file.unlink(missing_ok=True)
    else:
        files.replace(hook.file, hook.content, mode=0o755)


def uninstall(repository: str) -> list[Path]:
    """Remove the hooks and restore those that were there; return those that changed.

    Raises CONFIG_ERROR, with nothing changed, where a hook was changed by hand or cannot be written.
    """
    ours = hooks_directory(repository).ours
    for hook in ours:
        if hook.state == "edited":
            raise _refused(
                f"{hook.file} was changed by hand since it was installed. Look at it, delete it, and run this again"
            )
    done: list[Hook] = []
    try:
        for hook in ours:
            if hook.keeps:
                Path(f"{hook.file}{KEPT}").replace(hook.file)
            else:
                hook.file.unlink()
            done.append(hook)
    except OSError as error:
        raise _refused(f"{hook.file} cannot be written ({type(error).__name__})", bool(done)) from None
    return [hook.file for hook in ours]


def _refused(why: str, partly: bool = False) -> NexusError:
    return NexusError(Code.CONFIG_ERROR, f"{why}." + ("" if partly else UNCHANGED))
