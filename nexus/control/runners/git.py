"""git on a repository that may be hostile.

The configuration of a repository (filters, drivers, monitors, includes, a `.git` that leads elsewhere) can make git run
programs and read files. So git runs in a sandbox with only the directories that it needs, and a network only to push
from a repository of ours; its output is bounded. On a machine without a sandbox only the neutral configuration
protects; there the hub's own tools write nothing below a `.git`.
"""

from __future__ import annotations

import marshal
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from nexus.control.permissions.rules import within
from nexus.control.runners import sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.programs import git_steps
from nexus.core import foreign_files, outward, processes

SECONDS = 30  # time limit of one call
SIGNING_SECONDS = 30  # of a commit by the operator, who may have to unlock the key or to touch it
INDEX_BYTES = 50_000  # of an index, for each of which it gets a second more: some 500 files
ANY_CODE = tuple(range(256))  # for a step whose exit code is its answer, or does not matter
KEPT_SECONDS = 10  # the operator's own settings are used again for so long, unless their files changed
LARGEST = 1_000_000  # bytes of its answer that are read
MEMORY_BYTES = 2 * 1024**3  # that git may take: of a pack of few bytes it makes any number
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
    "gc.auto": "0",
    "maintenance.auto": "false",
    "submodule.recurse": "false",
    "advice.graftFileDeprecated": "false",
}
SENTENCES = {  # by what git says, for what it does not say plainly
    "fatal: Out of memory": "git needs too much memory to read it; remove what is large",
    # Its older merge-tree writes no tree; what else is used here came with 2.32 at the latest.
    "usage: git merge-tree": "this machine's git is too old: worktrees of agents need git 2.38 or newer",
    "No space left on device": "the disk is full",
    "Read-only file system": "it is on a disk that cannot be written to",
    **dict.fromkeys(
        ("insufficient permission", "unable to create directory for"),
        "git may not write into the repository; is it another account's?",
    ),
}
EYES = ("core.autocrlf", "core.eol", "core.excludesfile")  # settings by which git sees files
NO_COMMIT = "fatal: Needed a single revision"
PROGRAMS = {  # settings that run programs, and harmless values for them
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "merge": {"driver": "false"},  # a conflict is reported instead
}
PROTOCOLS = ("http", "https", "ssh")  # of other machines
# Variables with which git logs in, and signs, as the operator.
LOGIN = ("HOME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK", "GNUPGHOME")
# Of the operator: what git, ssh and the usual credential helpers read.
LOGIN_FILES = (
    *(".gitconfig", ".config/git", ".config/gh", ".config/glab-cli", ".git-credentials", ".netrc", ".ssh"),
    ".cache/git/credential",
)
UNREAD_CONFIG = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")  # variables that keep git from reading the operator's
PERSON = {"NAME": "Nexus", "EMAIL": "nexus@localhost"}
SIGNING = ("user.", "author.", "committer.", "gpg.", "commit.gpgsign")  # settings of who commits, and how they sign
LINK_BYTES = 4_096  # of a file that says where a git directory is


class GitFailed(Exception):
    """A git command failed. `str(error)` is safe to show to an operator."""


class TookTooLong(GitFailed):
    """A git command did not end within its time."""


@dataclass(frozen=True)
class GitResult:
    """The result of a git call: its exit code, and its output up to a limit."""

    code: int
    output: bytes
    cut: bool

    @property
    def line(self) -> str:
        return self.output.decode(errors="replace").strip()

    @property
    def names(self) -> list[str]:
        """What it said with `-z`, as the disk has it."""
        return [name for name in os.fsdecode(self.output).split("\0") if name]

    @property
    def settings(self) -> dict[str, str]:
        """The configuration that SETTINGS said, the last value of each name. Raises GitFailed."""
        if self.cut:
            raise GitFailed("the repository's configuration is too large")
        return {name: value for name, _, value in (each.partition("\n") for each in self.names)}


def printable(name: str) -> str:
    """Return a name, as the disk has it, so that it can be stored and shown."""
    return os.fsencode(name).decode(errors="replace")


class Step:
    """One git command of several in the same sandbox.

    An argument that is a number stands for the line that a step before said, -1 for the last one; a number as input
    for its output. `most_bytes`: the files whose names it says have no more in sum, or it counts as failed. `apart`:
    it works in the empty repository, as all do if there is no other. `pipe`: the descriptors that are its input and
    output.
    """

    def __init__(
        self,
        *arguments: str | int,
        expect: tuple[int, ...] = (0,),
        largest: int = LARGEST,
        input: bytes | int = b"",
        most_bytes: int | None = None,
        apart: bool = False,
        pipe: tuple[int, int] | None = None,
    ) -> None:
        self.expect, self.largest = expect, largest
        self.sent = (arguments, expect, largest, input, most_bytes, apart, pipe)  # as `git_steps` reads it


SETTINGS = Step("config", "--list", "-z", expect=(0, 1))
HEAD = Step("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}")


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
    as_operator: bool = False  # it reads the operator's own configuration
    outside: bool = False  # of the sandbox: for the operator's own programs
    person: Mapping[str, str] = field(default_factory=lambda: PERSON)  # who commits; empty: as the configuration says
    apart: str = ""  # an object format: it works in an empty repository of this format, which borrows `borrowed`
    borrowed: tuple[str, ...] = ()  # object directories
    objects: str = ""  # the object directory that it writes into, if not its own
    copies_index: bool = False  # it works with a copy of the index
    protocols: str = "none"  # that it may use
    largest_file: int | None = None  # bytes of each file that it writes
    outlives: bool = False  # whether it works on when this process ends
    seconds: float | None = None  # its time limit, if not SECONDS

    def line(self, *arguments: str) -> str:
        """Call git and return its one line of output. Raises GitFailed."""
        return self.run(*arguments).line

    def run(self, *arguments: str, expect: tuple[int, ...] = (0,), largest: int = LARGEST) -> GitResult:
        """Call git. Raises GitFailed for an unexpected exit code, and after `seconds`."""
        return self.steps(Step(*arguments, expect=expect, largest=largest))[0]

    def steps(self, *steps: Step, fds: Sequence[int] = ()) -> list[GitResult]:
        """Call git with each of these in turn, in one sandbox, with these descriptors open. Raises GitFailed for an
        unexpected exit code, after which nothing more is called, and after `seconds`."""
        todo = marshal.dumps([each.sent for each in steps])
        at = ("--work-tree", self.work_tree, "--git-dir", self.git_dir) if self.git_dir else ()
        program = (sys.executable, "-I", "-S", git_steps.__file__, self.apart, *at)
        largest = sum(each.largest + git_steps.HEAD for each in steps)
        with tempfile.TemporaryDirectory(prefix="nexus-git-", ignore_cleanup_errors=True) as scratch:
            ended = _call(self.prepared(program, {}, scratch), todo, largest, self.seconds or SECONDS, fds)
        rest, said = ended.output, list[GitResult]()
        for each in steps:
            head, _, rest = rest.partition(b"\n")
            if not head:
                raise _failure(ended.code, ended.errors.decode(errors="replace").strip())
            code, is_cut, size, of_errors = map(int, head.split())
            output, errors = rest[:size], rest[size : size + of_errors].decode(errors="replace").strip()
            if not is_cut and code not in each.expect:
                raise _failure(code, errors)
            if UNREAD in errors:
                raise GitFailed(errors[errors.index(UNREAD) :][:400])
            said.append(GitResult(code, output, bool(is_cut)))
            rest = rest[size + of_errors :]
        return said

    def prepared(self, command: Sequence[str], values: Mapping[str, str], scratch: str) -> Prepared:
        """Return how to start a command: in the sandbox if there is one, which has a SCRATCH of its own; else with
        `scratch`. Raises GitFailed."""
        cwd, works = self.work_tree, sandbox.state().works and not self.outside
        if works:
            scratch, command, cwd = PRIVATE, self._enclosed(command), processes.NEUTRAL
        works = works or self.outlives  # so it gets no guardian
        return Prepared(command, cwd, self.environment(values, scratch), works)

    def environment(self, values: Mapping[str, str], scratch: str) -> dict[str, str]:
        """Return the variables of a command that gets `values`, and `scratch` for files of its own."""
        env = processes.environment(
            "SYSTEMROOT",
            LC_ALL="C",
            HOME=os.devnull,
            GIT_CONFIG_NOSYSTEM="1",
            GIT_CONFIG_GLOBAL=os.devnull,
            GIT_ATTR_NOSYSTEM="1",
            GIT_TERMINAL_PROMPT="0",
            GIT_ALLOW_PROTOCOL=self.protocols,
            GIT_NO_REPLACE_OBJECTS="1",
            GIT_GRAFT_FILE=os.devnull,
            GIT_CONFIG_COUNT=str(len(self.config)),
        )
        env |= {**values, "SCRATCH": scratch, git_steps.MOST_MEMORY: str(MEMORY_BYTES)}
        for number, (name, value) in enumerate(self.config.items()):
            env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        for what, said in self.person.items():
            env |= {f"GIT_AUTHOR_{what}": said, f"GIT_COMMITTER_{what}": said}
        if self.network:
            env |= outward.variables()
        if self.as_operator:
            env = {name: value for name, value in env.items() if name not in UNREAD_CONFIG}
            env |= {name: os.environ[name] for name in LOGIN if os.environ.get(name)}
        if self.apart:
            env["GIT_DIR"] = f"{scratch}/git"
        if self.borrowed:
            env["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = ":".join(map(quoted, self.borrowed))
            env[git_steps.SHALLOW] = str(Path(self.borrowed[0]).with_name("shallow"))
        if self.objects:
            env["GIT_OBJECT_DIRECTORY"] = self.objects
        if self.largest_file is not None:
            env[git_steps.LARGEST_FILE] = str(self.largest_file)
        if self.copies_index:
            env |= {"GIT_INDEX_FILE": f"{scratch}/index", git_steps.INDEX: os.path.join(self.git_dir, "index")}
        return env

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
                files=(*own, *self.files, *(outward.files() if self.network else ())),
                network=self.network,
                outlives=self.outlives,
            )
        except RunnerFailed as failed:
            raise GitFailed(str(failed)) from None


def format_of(commit: str) -> str:
    """Return the object format of a repository, by one of its ids."""
    return "sha1" if len(commit) == 40 else "sha256"


def operators_settings(*names: str) -> dict[str, str]:
    """Return settings of the operator's own configuration; without names those that decide which files git sees, and
    how."""
    settings = _settings()
    found = {name: settings[name] for name in names or EYES if name in settings}
    if not names:
        ignored = Path(found.pop("core.excludesfile", _usual() / "ignore")).expanduser()
        found |= {"core.excludesfile": str(ignored)} if ignored.is_file() else {}
    return found


def _usual() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config", "git")


def _settings(git_dir: str = "") -> Mapping[str, str]:
    """Return the operator's own configuration, with what it includes for a repository."""
    files = [foreign_files.status(str(file)) for file in (Path.home() / ".gitconfig", _usual() / "config")]
    changed = tuple(0 if file is None else file.st_mtime_ns for file in files)
    return _read(str(Path.home()), changed, int(time.monotonic() // KEPT_SECONDS), git_dir)


@lru_cache(maxsize=8)
def _read(_home: str, _changed: tuple[int, ...], _period: int, git_dir: str) -> Mapping[str, str]:
    env = processes.environment("HOME", "XDG_CONFIG_HOME", LC_ALL="C", **({"GIT_DIR": git_dir} if git_dir else {}))
    command = ("git", "config", "--global", "--includes", "--list", "-z")
    try:
        said = processes.run(command, cwd=processes.NEUTRAL, env=env, seconds=SECONDS, largest=LARGEST).output
    except OSError:
        return {}
    entries = (each.partition("\n") for each in os.fsdecode(said).split("\0"))
    return {name: value if has_value else "true" for name, has_value, value in entries}


def login_files() -> tuple[str, ...]:
    """Return the operator's files that git reads to log in, whether or not they exist."""
    home = Path.home()
    agent = os.environ.get("SSH_AUTH_SOCK", "")
    return (*(str(home / name) for name in LOGIN_FILES), *((agent,) if agent.startswith("/") else ()))


def _failure(code: int, errors: str) -> GitFailed:
    """Return the error for what git says, in words for an operator."""
    if NO_COMMIT in errors:
        return NothingToClone("the repository has no commit yet")
    said = next((sentence for words, sentence in SENTENCES.items() if words in errors), errors[-400:])
    return GitFailed(said or f"git ended with exit code {code}")


def quoted(path: str) -> str:
    """Return a path as git reads it in lists of object directories."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _call(prepared: Prepared, input: bytes, largest: int, seconds: float, fds: Sequence[int]) -> processes.Finished:
    """Run a command to its end. Raises GitFailed."""
    command, cwd, env, sandboxed = prepared
    try:
        return processes.run(
            command, cwd=cwd, env=env, input=input, seconds=seconds, largest=largest, sandboxed=sandboxed, fds=fds
        )
    except TimeoutError:
        raise TookTooLong(f"git took longer than {seconds:g} seconds") from None
    except OSError as error:
        if not Path(cwd).is_dir():
            raise GitFailed(f"there is no directory {cwd}") from None
        raise GitFailed(f"git could not be started: {error.strerror}") from None


class NothingToClone(GitFailed):
    """There is no commit with a directory."""


class NoRepository(NothingToClone):
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

    @property
    def is_worktree(self) -> bool:
        """Whether it is an agent's own worktree, which borrows objects."""
        return len(self.objects) > 1

    @property
    def seconds(self) -> float:
        """The time limit of a call that reads or writes all files: it grows with the repository."""
        index = foreign_files.status(os.path.join(self.git_dir, "index"))
        return SECONDS + (0 if index is None else index.st_size / INDEX_BYTES)

    def git(self) -> Git:
        """Return git on its objects, branches and configuration."""
        return Git(self.common, self.git_dir, self.objects[1:], (self.common,))

    def beside(self, format: str) -> Git:
        """Return git that sees its work tree, too. Steps `apart` have neither its configuration nor its branches, and
        make objects in it."""
        return replace(
            self.git(),
            work_tree=self.top,
            reading=(self.top, *self.objects[1:]),
            apart=format,
            objects=self.objects[0],
            borrowed=self.objects,
            seconds=self.seconds,
        )

    def moving(self, settings: Mapping[str, str]) -> Git:
        """Return git that may change its work tree, with the filters and merge drivers of its `settings` switched
        off."""
        seen, off = operators_settings(), dict[str, str]()
        files = (seen["core.excludesfile"],) if "core.excludesfile" in seen else ()
        for name in settings:
            section, _, rest = name.partition(".")
            driver = rest.rpartition(".")[0]
            for key, value in PROGRAMS.get(section, {}).items():
                if driver:
                    off[f"{section}.{driver}.{key}"] = value
        writing, config = (self.top, self.common), {**NEUTRAL, **seen, **off}
        return Git(self.top, self.git_dir, self.objects[1:], writing, files, config, seconds=self.seconds)

    def head(self) -> str:
        """Return the commit of its work tree. Raises GitFailed."""
        return self.git().steps(HEAD)[0].line

    @property
    def operator(self) -> dict[str, str]:
        """The operator's settings of who they are and how they sign, in the person's repository that this is or comes
        from. What that repository's own configuration says does not count."""
        settings = _settings(str(Path(self.objects[-1]).parent))
        return {name: value for name, value in settings.items() if name.startswith(SIGNING)}

    def as_operator(self, format: str) -> Git:
        """Return git in an empty repository of this format that borrows the objects. It runs outside of the sandbox and
        reads no other configuration than the operator's own."""
        return Git(
            *(processes.NEUTRAL, ""),
            config=self.operator | {"user.useConfigOnly": "true"},
            as_operator=True,
            outside=True,
            person={},
            apart=format,
            borrowed=self.objects,
            seconds=SIGNING_SECONDS,
        )


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


def _linked(path: Path, is_shown: bool) -> tuple[str, str]:
    """Return the git directory that a `.git` file leads to, and the one that all its work trees share. Raises
    GitFailed."""
    git_dir = os.path.realpath(path.parent / first_line(path).removeprefix("gitdir:").strip())
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
