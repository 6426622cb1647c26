"""Clone the directory of an agent on its machine, as `[clones]` in runners.toml says (docs/how-to/run-a-pool.md).

git runs as it does for forges: in the sandbox, with the account's own configuration and credentials. It writes in a new
directory beside the agent's, which is renamed when it is whole. What a kill leaves there is removed at the next try.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from handoffs import checks
from nexus.control.models import PoolAgent
from nexus.control.runners import processes
from nexus.control.runners.base import RunnerFailed, in_share
from nexus.control.runners.git import NEUTRAL, PROTOCOLS, Git, GitFailed, Prepared, login_files, operators_settings
from nexus.control.runners_file import Clone
from nexus.control.worktrees import local_files
from nexus.core import foreign_files
from nexus.core.waiting import uninterrupted

log = logging.getLogger(__name__)

SAID = 400  # characters of git's words
CREDENTIALS = re.compile(r"(?<=://)\S*@")
PREFIX = ".nexus-clone-"
T = TypeVar("T")
_busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by the directory that is cloned


async def ensure(clone: Clone, agent: PoolAgent) -> None:
    """Clone an agent's directory, unless something of its name is there. Raises RunnerFailed, and leaves nothing then.

    When cancelled, it ends git and leaves nothing, too.
    """
    cwd = agent.cwd
    lock = _busy.setdefault(cwd, asyncio.Lock())
    async with lock:
        new = f"{PREFIX}{sha256(f'{agent.machine} {cwd}'.encode()).hexdigest()[:16]}"  # machines may share a disk
        try:
            try:
                if await _on_thread(agent, partial(_begin, clone.directory, cwd, new)):
                    await _clone(clone, agent, os.path.join(clone.directory, new))
                    await _on_thread(agent, partial(_finish, clone.directory, new, cwd))
            finally:
                await _on_thread(agent, partial(_remove, clone.directory, new))
        except (GitFailed, OSError) as error:
            raise RunnerFailed(f"the agent's directory, {cwd}, could not be cloned: {_printable(str(error))}") from None


def _begin(directory: str, cwd: str, new: str) -> bool:
    """Make the new directory, and remove what a kill left; False if the agent's is there."""
    if os.path.lexists(cwd):
        return False
    with foreign_files.directory(directory) as at:
        foreign_files.remove(new, at)
        os.mkdir(new, 0o700, dir_fd=at)
    return True


def _prepare(clone: Clone, new: str) -> Prepared:
    """Return how to clone into a new directory. Reads the operator's files. Raises GitFailed."""
    is_path = clone.git.startswith("/")
    config = {name: value for name, value in NEUTRAL.items() if name != "core.sshCommand"}
    git = Git(
        *(new, new, (clone.git,) if is_path else (), (new,)),
        config=config,
        network=not is_path,
        files=login_files(),
        as_operator=True,
        protocols="file" if is_path else ":".join(PROTOCOLS),
    )
    branch = () if clone.branch is None else (f"--branch={clone.branch}",)
    options = ("--quiet", "--template=", "--no-local", "--no-recurse-submodules", *branch)
    ssh = f"{operators_settings('core.sshcommand').get('core.sshcommand', 'ssh')} -o BatchMode=yes"
    command = ("git", "clone", *options, "--", clone.git, ".")
    return git.prepared(command, {"GIT_SSH_COMMAND": ssh}, new)


async def _clone(clone: Clone, agent: PoolAgent, new: str) -> None:
    """Clone into a new directory. Raises GitFailed."""
    prepared = await _on_thread(agent, partial(_prepare, clone, new))
    try:
        async with (
            asyncio.timeout(clone.seconds),
            processes.running(prepared.command, cwd=prepared.cwd, env=prepared.env) as program,
        ):
            program.stdin.close()
            code = await program.ended()
    except TimeoutError:
        raise GitFailed(f"it took longer than {clone.seconds} seconds") from None
    except RunnerFailed as failed:
        raise GitFailed(str(failed)) from None
    if code:
        raise GitFailed(program.stderr.kept.decode(errors="replace") or f"git ended with exit code {code}")
    if clone.files is not None:
        await _on_thread(agent, partial(_bring, clone.files, new, agent.cwd))


def _bring(root: str, new: str, cwd: str) -> None:
    """Bring a project's local files into a new clone. Raises GitFailed."""
    git = Git(new, os.path.join(new, ".git"), writing=(new,))
    _, lacks = local_files.bring(checks.approved_files(root), git)
    if lacks:
        log.warning("The clone %s: %s", cwd, lacks)


def _finish(directory: str, new: str, cwd: str) -> None:
    """Rename the new directory to the agent's. Raises OSError, except where something of its name came meanwhile."""
    with foreign_files.directory(directory) as at:
        if not os.path.lexists(cwd):
            os.rename(new, Path(cwd).name, src_dir_fd=at, dst_dir_fd=at)


def _remove(directory: str, new: str) -> None:
    with suppress(OSError):
        foreign_files.remove(os.path.join(directory, new))


async def _on_thread(agent: PoolAgent, function: Callable[[], T]) -> T:
    """Call a function to its end, so that no thread works here after the next one has begun."""
    return await uninterrupted(in_share(agent, function))


def _printable(words: str) -> str:
    return " ".join(CREDENTIALS.sub("***@", words).split())[-SAID:]
