"""The sandbox of a pool agent: what it sees besides its own directory, and where it may write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from nexus.control import protected_paths
from nexus.control.models import PoolAgent, PoolWorktree
from nexus.control.rules import within
from nexus.control.runners import repositories, sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.configuration import Acp, Programs, Runner

LARGEST_SIGN_IN = 1_048_576  # bytes of a file
HOMES = "pool"  # in the hub's home: a directory for each agent, its HOME in the sandbox


def home_of(agent: PoolAgent) -> str:
    """Return the agent's HOME in the sandbox; create it if missing. It outlives turns, because agents keep their
    sessions there."""
    home = Path(protected_paths.home()) / HOMES / agent.pk
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    return str(home)


def sign_in(runner: Acp, agent: PoolAgent) -> None:
    """Copy the runner's sign-in files into the agent's HOME, if they are newer than the copies, which the agent may
    have renewed."""
    home = Path(home_of(agent))
    for name in runner.sign_in:
        source, copy = Path(name).expanduser(), home / name.removeprefix("~/")
        try:
            if not source.is_file() or source.stat().st_size > LARGEST_SIGN_IN:
                continue
            if copy.is_symlink() or not copy.resolve().is_relative_to(home.resolve()):
                raise RunnerFailed(f"{copy} leads elsewhere; nothing is copied there")
            if not copy.exists() or copy.stat().st_mtime < source.stat().st_mtime:
                copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                copy.touch(mode=0o600)
                copy.write_bytes(source.read_bytes())
        except OSError as error:
            raise RunnerFailed(f"{name} could not be copied into the agent's home: {error.strerror}") from None


def confined(
    command: Sequence[str], runner: Runner, agent: PoolAgent, *, cwd: str, reading: Sequence[str] = ()
) -> list[str]:
    """Return the command line that runs a command as this agent in the sandbox. Raises RunnerFailed."""
    its_own = [str(Path(path).expanduser()) for path in runner.read_paths] if isinstance(runner, Programs) else []
    if isinstance(runner, Acp):
        its_own += _program(runner.command[0], (agent.permissions.cwd, *its_own))
    tree = PoolWorktree.objects.filter(agent=agent).first()
    fixed = repositories.fixed(agent.permissions, tree.path if tree is not None else None)
    return sandbox.wrap(
        command,
        agent.permissions,
        network=isinstance(runner, Programs) and runner.network,
        cwd=cwd,
        reading=[*its_own, *_borrowed(agent), *reading],
        writing=[home_of(agent)],
        fixed=fixed.mounts(),
    )


def _borrowed(agent: PoolAgent) -> list[str]:
    """Return the object directories that git needs in the agent's worktree; for a child agent, only those that its
    parent sees.

    Of a repository that its parent did not see, the agent sees only the files of its worktree.
    """
    tree = PoolWorktree.objects.filter(path=agent.cwd).first()
    if tree is None:
        return []
    if agent.parent is None:
        return list(tree.borrowed)
    above = (agent.parent.cwd, *_borrowed(agent.parent))
    return [place for place in tree.borrowed if within(place, above)]


def _program(name: str, seen: Sequence[str]) -> list[str]:
    """Return the path of the runner's own program, unless `seen` already holds it."""
    found = shutil.which(name)
    links = [] if found is None else [found, os.path.realpath(found)]
    return [path for path in links if not within(path, (*sandbox.SYSTEM, *sandbox.python(), *seen))]
