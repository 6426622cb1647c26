"""Housekeeping of the pool: compaction of full contexts, expiry of questions, and removal of files that ended agents
left in the home.

The home has a HOME for each agent that ran in the sandbox, and logs of the traffic between models and agents. A HOME is
removed when its agent has ended, a log when no agent of its name is in the database.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nexus.control import selectors
from nexus.control.models import PoolAgent, Question
from nexus.control.runners.base import LOGS
from nexus.control.runners.confinement import HOMES
from nexus.control.runners.repositories import remove_placeholders
from nexus.control.services import questions, transcript
from nexus.core.background_work import Work
from nexus.core.config import CoreSettings
from nexus.core.contributions import DoctorCheck, Finding


def clear() -> None:
    """Remove what ended agents left behind. What cannot be removed stays, and `nexus doctor` reports it."""
    home = CoreSettings.current().home
    there = [*_entries(home / HOMES), *_entries(home / LOGS)]  # first: without the files of agents created meanwhile
    living = PoolAgent.objects.living().values_list("pk", flat=True)
    known = PoolAgent.objects.values_list("agent_id", flat=True).distinct()
    _remove(_left(home, there, set(living), set(known)))
    written = PoolAgent.objects.values_list("ended_at", "write_paths")
    paths = {path for ended_at, each in written if ended_at is not None for path in each}
    remove_placeholders(paths - {path for ended_at, each in written if ended_at is None for path in each})


def _left(home: Path, there: Iterable[Path], living: Collection[str], known: Collection[str]) -> list[Path]:
    """Return the paths of `there` that are left over: HOMEs of agents that are not living, and logs of unknown
    agents."""

    def is_left(path: Path) -> bool:
        if path.parent == home / HOMES:
            return path.name not in living
        return path.name.removesuffix(".1").removesuffix(".jsonl") not in known

    return [path for path in there if is_left(path)]


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _check(examination: Any) -> Iterator[Finding]:
    """Check that ended or forgotten agents have left nothing in the home."""
    if "pool_agents" not in examination.tables():
        return
    home = Path(examination.path)
    rows = examination.rows("SELECT pool_agent_id, agent_id, ended_at FROM pool_agents")
    living, known = {key for key, _, ended in rows if ended is None}, {name for _, name, _ in rows}
    left = _left(home, [*_entries(home / HOMES), *_entries(home / LOGS)], living, known)
    if left:
        yield Finding(
            f"{len(left)} directories and logs in {home} are left of ended agents of the pool, such as {left[0]}.",
            "A server with a pool removes them by itself, once an hour.",
            partial(_remove, left),
            "they were removed",
            note=True,
        )


CHECKS = (DoctorCheck("pool leftovers", _check),)


def compact_full() -> None:
    """Compact each living agent whose context is nearly full, by its runner's limit."""
    for agent in PoolAgent.objects.living():
        available = selectors.runner_of(agent).available_tokens
        while selectors.is_nearly_full(agent) and transcript.compact(agent, None, available):
            pass


class Expiry(Work[str, None]):
    """Background work that records due questions as expired, one at a time. `claim` does all of it."""

    name = "questions"

    def lanes(self) -> Sequence[str]:
        return ("due",) if Question.objects.open().exists() else ()

    def claim(self, lane: str) -> str | None:
        return questions.expire_next()

    def act(self, item: str) -> None:
        """Do nothing: `claim` has recorded the expiry."""

    def settle(self, item: str, outcome: None) -> bool:
        return True


EXPIRY = Expiry()
