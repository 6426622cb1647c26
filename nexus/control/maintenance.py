"""What the pool keeps clean by itself, and what doctor and retention need of it.

Pool rows belong to no workspace, so no export of a workspace holds them. The home has a HOME for each agent that ran in
the sandbox, and logs of the traffic between models and agents. A HOME is removed when its agent has ended, a log when
no agent of its name is in the database.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from django.db.models import Exists, OuterRef, QuerySet

from nexus.control.agents import questions, transcript
from nexus.control.agents.wake_kinds import MAIL
from nexus.control.models import Entry, PoolAgent, PoolWorktree, Question, Turn, Wake, WorktreeState
from nexus.control.runners import contexts
from nexus.control.runners.base import LOGS
from nexus.control.runners.processes import HOMES
from nexus.control.runners.repositories import remove_placeholders
from nexus.control.runners_file import remarks
from nexus.control.worktrees import worktrees
from nexus.control.worktrees.trees import FOLDER
from nexus.core import foreign_files
from nexus.core.background_work import BackgroundWork
from nexus.core.config import CoreSettings
from nexus.core.contributions import DoctorCheck, Finding, RetentionRule

THERE = """
SELECT w.worktree_id, w.path, w.state, a.agent_id, a.ended_at FROM pool_worktrees w
JOIN pool_agents a ON a.pool_agent_id = w.agent_id WHERE w.state <> 'discarded' ORDER BY w.worktree_id
"""
GONE = "UPDATE pool_worktrees SET state = 'discarded' WHERE worktree_id = '{}'"
OVER = "status NOT IN ('queued', 'running')"

KEPT_TURNS = 20  # the last ended turns of each agent that are kept, whatever their age


def _ceilings(examination: Any) -> Iterator[Finding]:
    """Check that no pool agent exceeds its parent's ceiling."""
    if "pool_agents" not in examination.tables():
        return
    raised = examination.value(
        "SELECT count(*) FROM pool_agents AS child JOIN pool_agents AS parent"
        " ON child.parent_id = parent.pool_agent_id"
        " WHERE child.ended_at IS NULL AND (parent.preset <> 'trusted' OR child.depth <> parent.depth + 1)"
    )
    if raised:
        yield Finding(
            f"{raised} agents of the pool exceed their parents' ceilings.",
            "Another program wrote them. End them with `nexus rpc destroy`, and create them again.",
        )


def _waiting_for_nobody(examination: Any) -> Iterator[Finding]:
    """Check that every queued turn belongs to a living agent."""
    if "pool_turns" not in examination.tables():
        return
    lost = "status = 'queued' AND agent_id IN (SELECT pool_agent_id FROM pool_agents WHERE ended_at IS NOT NULL)"
    if count := examination.value(f"SELECT count(*) FROM pool_turns WHERE {lost}"):  # noqa: S608
        yield Finding(
            f"{count} turns wait for agents of the pool that ended.",
            "Nobody takes them.",
            examination.repair(f"UPDATE pool_turns SET status = 'cancelled', ended_at = queued_at WHERE {lost}"),  # noqa: S608
            "they were cancelled",
        )


def _check_runners(examination: Any) -> Iterator[Finding]:
    """Check that the runners file can be read."""
    if wrong := remarks():
        yield Finding(wrong, "Correct the file; then `nexus runners` shows its runners.")


def _check_worktrees(examination: Any) -> Iterator[Finding]:
    """Check that each worktree below the home belongs to an agent and exists, and that those of ended agents are
    settled."""
    if "pool_worktrees" not in examination.tables():
        return
    known = set()
    for key, path, state, agent_id, ended_at in examination.rows(THERE):
        known.add(path)
        if not Path(path).is_dir():
            yield Finding(
                f"The worktree of {agent_id!r} is gone: {path}.",
                "Its branch may still exist; the worktree's record is useless.",
                examination.repair(GONE.format(key)),  # an id of our own making
                "mark it as discarded",
            )
        elif state == "open" and ended_at is not None:
            yield Finding(
                f"{agent_id!r} ended, and its worktree {path} is not settled.",
                "Put it into the merge queue, keep or discard it on the agent's page.",
                note=True,
            )
    home = Path(os.path.realpath(examination.path)) / FOLDER
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        if str(path) not in known and not path.name.startswith("."):
            yield Finding(
                f"{path} is no agent's worktree: it was not finished, or its record was pruned.",
                "Look into it, and remove the directory.",
            )


def _ended(horizon: datetime) -> QuerySet[PoolAgent]:
    over = PoolAgent.objects.filter(ended_at__lt=horizon, children=None)  # children refer to their parents
    existing = PoolWorktree.objects.exclude(state=WorktreeState.DISCARDED)
    return over.exclude(pk__in=existing.values("agent")).order_by("ended_at")


def _questions(horizon: datetime) -> QuerySet[Question]:
    return Question.objects.filter(ended_at__lt=horizon).order_by("ended_at")


def _entries(horizon: datetime) -> QuerySet[Entry]:
    """Return compacted entries of living agents. Entries in the context leave it by compaction alone: the runners need
    them."""
    living = PoolAgent.objects.living().values("pk")
    return Entry.objects.filter(agent__in=living, compacted_at__lt=horizon).order_by("agent", "compacted_at")


def _turns(horizon: datetime) -> QuerySet[Turn]:
    """Return old turns of living agents that have no entry left, except the last ones and those that questions or wakes
    still refer to."""
    newer = Turn.objects.filter(agent=OuterRef("agent"), ended_at__gt=OuterRef("ended_at"))
    kept = (
        Entry.objects.filter(turn=OuterRef("pk")),
        Question.objects.filter(turn=OuterRef("pk")),  # it has its own retention
        Wake.objects.filter(turn=OuterRef("pk")).exclude(kind=MAIL),  # without it the item would wake the agent again
    )
    old = Turn.objects.filter(ended_at__lt=horizon, agent__ended_at=None)
    old = old.filter(Exists(newer[KEPT_TURNS - 1 :]), *(~Exists(rows) for rows in kept))
    return old.order_by("ended_at")


RETENTION_RULES = (
    RetentionRule("ended_questions", _questions),
    RetentionRule("ended_pool_agents", _ended),
    RetentionRule("compacted_pool_entries", _entries),  # before their turns: a turn has any number of them
    RetentionRule("ended_pool_turns", _turns),
)


def clear() -> None:
    """Remove what ended agents left behind. What cannot be removed stays, and `nexus doctor` reports it."""
    home = CoreSettings.current().home
    there = [*_files_in(home / HOMES), *_files_in(home / LOGS)]  # first: without the files of agents created meanwhile
    living = PoolAgent.objects.living().values_list("pk", flat=True)
    known = PoolAgent.objects.values_list("agent_id", flat=True).distinct()
    _remove(_left(home, there, set(living), set(known)))
    worktrees.finish_discards()
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


def _files_in(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            foreign_files.remove(str(path))


def _check_leftovers(examination: Any) -> Iterator[Finding]:
    """Check that ended or forgotten agents have left nothing in the home."""
    if "pool_agents" not in examination.tables():
        return
    home = Path(examination.path)
    rows = examination.rows("SELECT pool_agent_id, agent_id, ended_at FROM pool_agents")
    living, known = {key for key, _, ended in rows if ended is None}, {name for _, name, _ in rows}
    left = _left(home, [*_files_in(home / HOMES), *_files_in(home / LOGS)], living, known)
    if left:
        yield Finding(
            f"{len(left)} directories and logs in {home} are left of ended agents of the pool, such as {left[0]}.",
            "A server with a pool removes them by itself, once an hour.",
            partial(_remove, left),
            "they were removed",
            note=True,
        )


CHECKS = (
    DoctorCheck("pool ceilings", _ceilings),
    DoctorCheck("pool turns", _waiting_for_nobody),
    DoctorCheck("runners", _check_runners),
    DoctorCheck("worktrees", _check_worktrees),
    DoctorCheck("pool leftovers", _check_leftovers),
)


def compact_full(machine: str) -> None:
    """Compact each living agent of a machine whose context is nearly full, by its runner's limit."""
    for agent in PoolAgent.objects.living().filter(machine=machine):
        available = contexts.runner_of(agent).available_tokens
        while contexts.is_nearly_full(agent) and transcript.compact(agent, None, available):
            pass


class Expiry(BackgroundWork[str, None]):
    """Background work that records due questions as expired, one at a time. `claim` does all of it."""

    name = "questions"

    def queues(self) -> Sequence[str]:
        return ("due",) if Question.objects.open().exists() else ()

    def claim(self, queue: str) -> str | None:
        return questions.expire_next()

    def act(self, item: str) -> None:
        """Do nothing: `claim` has recorded the expiry."""

    def given_up(self, item: str, why: str) -> None:
        """Go on: nothing was claimed, and what is due is found again."""

    def settle(self, item: str, outcome: None) -> bool:
        return True


EXPIRY = Expiry()
