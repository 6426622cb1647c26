"""git on a repository that may be hostile: none of its hooks, filters or drivers runs, and nothing asks or goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 120  # that one call may take
LARGEST = 1_000_000  # bytes of its answer that are read
UNREAD = "could not open directory"  # a warning, with which git goes on as if nothing were there
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
PROGRAMS = {  # what configured names may run, and what they run instead
    "filter": {"clean": "", "smudge": "", "process": "", "required": "false"},
    "merge": {"driver": "false"},  # a conflict, told
}


class GitFailed(Exception):
    """git could not do it; the message is for people."""


@dataclass(frozen=True)
class Said:
    """What a call answered: its exit code, and its output up to a bound."""

    code: int
    output: bytes
    cut: bool

    @property
    def line(self) -> str:
        return self.output.decode(errors="replace").strip()


@dataclass(frozen=True)
class Git:
    """A work tree and the directory of its repository: what a `.git` in the tree says now is not asked."""

    work_tree: str
    git_dir: str | None = None  # None: found, as git finds it
    config: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def at(work_tree: str, git_dir: str | None = None) -> Git:
        """With the repository's own programs switched off. Raises GitFailed."""
        bare = Git(work_tree, git_dir, NEUTRAL)
        names = bare.run("config", "--list", "--name-only", "-z", expect=(0, 1)).output.decode(errors="replace")
        off: dict[str, str] = dict(NEUTRAL)
        for name in names.split("\0"):
            section, _, rest = name.partition(".")
            driver = rest.rpartition(".")[0]
            for key, value in PROGRAMS.get(section, {}).items():
                if driver:
                    off[f"{section}.{driver}.{key}"] = value
        return Git(work_tree, git_dir, off)

    def line(self, *arguments: str, index: str = "") -> str:
        """The one line that a call answers. Raises GitFailed."""
        return self.run(*arguments, index=index).line

    def run(self, *arguments: str, index: str = "", expect: tuple[int, ...] = (0,), largest: int = LARGEST) -> Said:
        """Call git. Raises GitFailed for an exit code that is not expected, and after SECONDS."""
        at = ["--work-tree", self.work_tree, "--git-dir", self.git_dir] if self.git_dir else []
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(  # noqa: S603  # no shell; what others name stands where git expects it
                    ["git", "--no-pager", *at, *arguments],  # noqa: S607  # the git of the person's path
                    cwd=self.work_tree,
                    env=self._environment(index),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                if not Path(self.work_tree).is_dir():
                    raise GitFailed(f"there is no directory {self.work_tree}") from None
                raise GitFailed(f"git could not be started: {error.strerror}") from None
            late = threading.Event()
            timer = threading.Timer(SECONDS, _stop, (process, late))
            timer.start()
            try:
                assert process.stdout is not None
                output = process.stdout.read(largest + 1)
                cut = len(output) > largest
                if cut:
                    _stop(process)
                code = process.wait()
            finally:
                timer.cancel()
                _stop(process)
                process.stdout.close() if process.stdout else None
            if late.is_set():
                raise GitFailed(f"git took longer than {SECONDS} seconds")
            errors.seek(0)
            said = errors.read(LARGEST).decode(errors="replace").strip()
            if not cut and code not in expect:
                raise GitFailed(f"git {arguments[0]}: {said[:400] or f'exit code {code}'}")
            if UNREAD in said:
                raise GitFailed(f"git {arguments[0]}: {said[said.index(UNREAD) :][:400]}")
        return Said(code, output[:largest], cut)

    def _environment(self, index: str) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "TMPDIR", "SYSTEMROOT") if name in os.environ}
        config = {"GIT_CONFIG_COUNT": str(len(self.config))}
        for number, (name, value) in enumerate(self.config.items()):
            config |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
        people = {f"GIT_{who}_{what}": said for who in ("AUTHOR", "COMMITTER") for what, said in PERSON.items()}
        return {
            **kept,
            **config,
            **people,
            "LC_ALL": "C",
            "HOME": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "none",
            **({"GIT_INDEX_FILE": index} if index else {}),
        }


PERSON = {"NAME": "Nexus", "EMAIL": "nexus@localhost"}


def _stop(process: subprocess.Popen[bytes], late: threading.Event | None = None) -> None:
    """End what is left of a call, and what it started."""
    if late is not None:
        late.set()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
