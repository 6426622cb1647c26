"""git on a repository that may be hostile.

The configuration of a repository (filters, drivers, monitors, includes, a `.git` that leads elsewhere) can make git run
programs and read files. So git runs in a sandbox with only the directories that it needs, and a network only to push
from a repository of ours; its output is bounded. On a machine without a sandbox only the neutral configuration
protects; there the hub's own tools write nothing below a `.git`.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from nexus.control.permissions.rules import within
from nexus.control.runners import sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.core import foreign_files, processes

SECONDS = 30  # time limit of one call
LARGEST = 1_000_000  # bytes of its answer that are read
PRIVATE = "/tmp/nexus"  # noqa: S108 - in the sandbox's own memory
UNREAD = "could not open directory"  # a warning: git goes on as if the directory were empty
NEUTRAL = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.editor": "false",
    "core.askPass": "false",
    "core.sshCommand": "false",
    "core.alternateRefsCommand": "true",
    "commit.gpgSign": "false",
    "protocol.allow": "never",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
}
PROGRAMS = {  # settings that run programs, and harmless values for them
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "merge": {"driver": "false"},  # a conflict is reported instead
}
PROTOCOLS = ("http", "https", "ssh")  # of other machines
LOGIN = ("HOME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK")  # variables with which git logs in as the operator
# Of the operator: what git, ssh and the usual credential helpers read.
LOGIN_FILES = (
    *(".gitconfig", ".config/git", ".config/gh", ".config/glab-cli", ".git-credentials", ".netrc", ".ssh"),
    ".cache/git/credential",
)
OPERATORS_CONFIG = "unset GIT_CONFIG_GLOBAL GIT_CONFIG_NOSYSTEM\n"  # begins a script that logs in so
PERSON = {"NAME": "Nexus", "EMAIL": "nexus@localhost"}
LINK_BYTES = 4_096  # of a file that says where a git directory is


class GitFailed(Exception):
    """A git command failed. `str(error)` is safe to show to an operator."""


class TookTooLong(GitFailed):
    """A git command did not end within SECONDS."""


@dataclass(frozen=True)
class Said:
    """The result of a git call: its exit code, and its output up to a limit."""

    code: int
    output: bytes
    cut: bool

    @property
    def line(self) -> str:
        return self.output.decode(errors="replace").strip()


class Prepared(NamedTuple):
    """A command, its working directory and its environment."""

    command: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    sandboxed: bool


@dataclass(frozen=True)
class Git:
    """A work tree, its git directory, and the other directories that git may see."""

    work_tree: str
    git_dir: str
    reading: tuple[str, ...] = ()
    writing: tuple[str, ...] = ()
    files: tuple[str, ...] = ()  # further files to read, if they exist
    config: Mapping[str, str] = field(default_factory=lambda: NEUTRAL)
    network: bool = False

    def without_programs(self) -> Git:
        """Return the same with the configured filters and merge drivers switched off. Raises GitFailed."""
        settings = self.run("config", "--list", "--name-only", "-z", expect=(0, 1))
        if settings.cut:
            raise GitFailed("the repository's configuration is too large")
        off = dict(self.config)
        for name in os.fsdecode(settings.output).split("\0"):
            section, _, rest = name.partition(".")
            driver = rest.rpartition(".")[0]
            for key, value in PROGRAMS.get(section, {}).items():
                if driver:
                    off[f"{section}.{driver}.{key}"] = value
        return replace(self, config=off)

    def line(self, *arguments: str) -> str:
        """Call git and return its one line of output. Raises GitFailed."""
        return self.run(*arguments).line

    def commit_of(self, name: str) -> str:
        """Return the commit that a branch or another name stands for; empty if there is none. Raises GitFailed."""
        asked = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        return self.run(*asked, expect=(0, 1)).line

    def run(self, *arguments: str, expect: tuple[int, ...] = (0,), largest: int = LARGEST) -> Said:
        """Call git. Raises GitFailed for an unexpected exit code, and after SECONDS."""
        at = ("--work-tree", self.work_tree, "--git-dir", self.git_dir)
        return self._said(("git", "--no-pager", *at, *arguments), {}, b"", expect, largest)

    def script(self, text: str, values: Mapping[str, str], *, input: bytes = b"", largest: int = LARGEST) -> Said:
        """Run a shell script with `values` in its environment, and SCRATCH, a directory that is removed afterwards.

        Raises GitFailed for an exit code other than 0, and after SECONDS.
        """
        return self._said(("sh", "-euc", text), values, input, (0,), largest)

    def _said(
        self, command: Sequence[str], values: Mapping[str, str], input: bytes, expect: tuple[int, ...], largest: int
    ) -> Said:
        with tempfile.TemporaryDirectory(prefix="nexus-git-", ignore_cleanup_errors=True) as scratch:
            said, errors = _call(self.prepared(command, values, scratch), input, largest)
        if not said.cut and said.code not in expect:
            raise GitFailed(errors[-400:] or f"git ended with exit code {said.code}")
        if UNREAD in errors:
            raise GitFailed(errors[errors.index(UNREAD) :][:400])
        return said

    def prepared(self, command: Sequence[str], values: Mapping[str, str], scratch: str) -> Prepared:
        """Return how to start a command: in the sandbox if there is one, which has a SCRATCH of its own; else with
        `scratch`. Raises GitFailed."""
        cwd, works = self.work_tree, sandbox.state().works
        if works:
            scratch, command, cwd = PRIVATE, self._enclosed(command), processes.NEUTRAL
        return Prepared(command, cwd, {**self._environment(), **values, "SCRATCH": scratch}, works)

    def _enclosed(self, command: Sequence[str]) -> list[str]:
        program = shutil.which("git") or "git"
        seen = (*sandbox.SYSTEM, *self.reading, *self.writing)
        own = [path for path in (program, os.path.realpath(program)) if not within(path, seen)]
        try:
            return sandbox.enclose(
                command,
                cwd=self.work_tree,
                reading=self.reading,
                writing=self.writing,
                files=(*own, *self.files),
                network=self.network,
            )
        except RunnerFailed as failed:
            raise GitFailed(str(failed)) from None

    def _environment(self) -> dict[str, str]:
        config = {"GIT_CONFIG_COUNT": str(len(self.config))}
        for number, (name, value) in enumerate(self.config.items()):
            config |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        people = {f"GIT_{who}_{what}": said for who in ("AUTHOR", "COMMITTER") for what, said in PERSON.items()}
        return {
            **processes.environment("SYSTEMROOT", LC_ALL="C"),
            **config,
            **people,
            "HOME": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "none",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_GRAFT_FILE": os.devnull,
        }


def login() -> Mapping[str, str]:
    """Return the variables with which git logs in as the operator."""
    return {name: os.environ[name] for name in LOGIN if os.environ.get(name)}


def login_files() -> tuple[str, ...]:
    """Return the operator's files that git reads to log in, whether or not they exist."""
    home = Path.home()
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    return (*(str(home / name) for name in LOGIN_FILES), *((agent,) if agent.startswith("/") else ()))


def _call(prepared: Prepared, input: bytes, largest: int) -> tuple[Said, str]:
    """Run a command and return its result and its stderr. Raises GitFailed."""
    command, cwd, env, sandboxed = prepared
    try:
        done = processes.run(
            command, cwd=cwd, env=env, input=input, seconds=SECONDS, largest=largest, sandboxed=sandboxed
        )
    except TimeoutError:
        raise TookTooLong(f"git took longer than {SECONDS} seconds") from None
    except OSError as error:
        if not Path(cwd).is_dir():
            raise GitFailed(f"there is no directory {cwd}") from None
        raise GitFailed(f"git could not be started: {error.strerror}") from None
    return Said(done.code, done.output, done.cut), done.errors.decode(errors="replace").strip()


class NoRepository(GitFailed):
    """A directory is in no git work tree."""


@dataclass(frozen=True)
class Origin:
    """A repository that worktrees are made from: its work tree, git directory, and object directories, its own
    first."""

    top: str
    git_dir: str
    objects: tuple[str, ...]

    @property
    def common(self) -> str:
        """The git directory that all its work trees share."""
        return str(Path(self.objects[0]).parent)

    def git(self) -> Git:
        """Return git on its work tree, which git may change. Raises GitFailed."""
        return Git(self.top, self.git_dir, self.objects[1:], (self.top, self.common)).without_programs()

    def head(self) -> str:
        """Return the commit of its work tree. Raises GitFailed."""
        git = Git(self.common, self.git_dir, (self.common, *self.objects[1:]))
        return git.line("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}")

    def reading(self) -> Git:
        """Return git on its work tree, which git may not change. Raises GitFailed."""
        return Git(self.top, self.git_dir, (self.top, self.common, *self.objects[1:])).without_programs()

    def writing(self) -> Git:
        """Return git on its objects and branches."""
        return Git(self.common, self.common, self.objects[1:], (self.common,))


def origin_of(directory: str, *, is_shown: bool = True) -> Origin:
    """Return the repository whose work tree holds a directory, found without git. Raises NoRepository and GitFailed.

    Anybody may have put a `.git` there that leads elsewhere. If the repository `is_shown` to an agent, a link must be
    that of a git worktree or a submodule, whose git directory leads back to it.
    """
    for top in (Path(directory), *Path(directory).parents):
        path = top / ".git"
        try:
            mode = path.stat().st_mode if not is_shown else path.lstat().st_mode
        except OSError:
            continue
        if stat.S_ISDIR(mode) and not (path / "HEAD").exists():
            continue  # git ignores what is not a repository, too
        if stat.S_ISDIR(mode):
            git_dir = common = os.path.realpath(path)
            if is_shown and os.path.lexists(path / "commondir"):
                raise GitFailed(f"{path} leads to another repository")
        elif stat.S_ISREG(mode):
            git_dir, common = _linked(path, is_shown)
        else:
            raise GitFailed(f"{path} is neither a directory nor a file")
        objects = os.path.join(common, "objects")
        if is_shown and os.path.lexists(os.path.join(objects, "info", "alternates")):
            raise GitFailed(
                f"{common} borrows objects from another repository; `git repack -a -d` there, and then remove "
                "objects/info/alternates"
            )
        return Origin(str(top), git_dir, (objects,))
    raise NoRepository(f"{directory} is in no git repository")


def git_directory(path: Path) -> str:
    """Return the real path that a `.git` file leads to."""
    return os.path.realpath(path.parent / first_line(path).removeprefix("gitdir:").strip())


def _linked(path: Path, is_shown: bool) -> tuple[str, str]:
    """Return the git directory that a `.git` file leads to, and the one that all its work trees share. Raises
    GitFailed."""
    git_dir = git_directory(path)
    above = Path(git_dir).parent
    back = first_line(Path(git_dir, "gitdir"))
    if above.name == "worktrees" and back and os.path.realpath(Path(git_dir, back)) == str(path):
        return git_dir, str(above.parent)
    if not Path(git_dir).is_dir():
        raise GitFailed(f"{path} leads to {git_dir}, where there is no directory")
    if not is_shown:
        return git_dir, git_dir
    if not os.path.lexists(os.path.join(git_dir, "commondir")):
        tree = Git(git_dir, git_dir, (git_dir,)).run("config", "--get", "core.worktree", expect=(0, 1)).line
        if tree and os.path.realpath(os.path.join(git_dir, tree)) == str(path.parent):
            return git_dir, git_dir
    raise GitFailed(f"{path} leads to {git_dir}, which does not lead back to it")


def first_line(path: Path) -> str:
    """Return the first line of a regular file; empty if there is none."""
    return os.fsdecode(foreign_files.beginning(str(path), LINK_BYTES) or b"").partition("\n")[0].replace("\0", "")
