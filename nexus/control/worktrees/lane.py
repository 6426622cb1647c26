"""The merge queue: approved work of worktrees is merged and checked, one entry of a branch after the other.

An entry is claimed by an epoch and a lock of the home, which ends with its process. A hub that was killed leaves a
running entry; the next claim begins it anew. Each step reads where the branch is, so that doing it again is safe.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import IO

from django.db import IntegrityError, transaction
from django.db.models import Q

from coordination.comments import quoted
from coordination.ids import new_id
from coordination.paths import workspace_id_of
from handoffs.checks import Check
from nexus.control.agents import turns
from nexus.control.models import (
    MergeState,
    MergeStep,
    PoolWorktree,
    ReturnCause,
    WorktreeMerge,
    WorktreeState,
)
from nexus.control.permissions.members import Actor
from nexus.control.runners.git import GitFailed, Origin
from nexus.control.worktrees import merging, trees, worktrees
from nexus.control.worktrees.merging import BranchMoved, MergeConflict
from nexus.control.worktrees.verification import NotNow, approved, check_sandbox, failures
from nexus.control.worktrees.worktrees import refusal
from nexus.core.background_work import BackgroundWork
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError, not_found

HELD = timedelta(minutes=30)  # by a hub of another home, since its last step
TAIL = 4_000  # characters of a failed check's output that are kept
WHOLE = 20_000  # characters of conflicts in a message


def queue(
    actor: Actor,
    agent_id: str,
    worktree_id: str | None = None,
    *,
    seen: str | None = None,
    approve: Callable[[], object] = lambda: None,
) -> WorktreeMerge:
    """Put a worktree's work, as it is now, into the lane of the branch that its origin is on.

    What is approved is the merge onto that branch as it is. `seen` is git's id of its content, as a person saw it;
    `approve` is called in the transaction.

    Raises the errors of `worktrees.decided` and of `approve`; WORKTREE_REFUSED also if it waits there already, would
    change nothing, or something else than was seen.
    """
    row = worktrees.decided(actor, agent_id, worktree_id, "merge")
    if row.merges.open().exists():
        raise refusal("it waits in the merge queue already")
    try:
        tree = worktrees.own(row)
        target = trees.hand_in(tree, f"Work of {row.branch}")
        ref = tree.ref(trees.LANE)
        merge, commit = merging.prepare(tree.source, target, tree.base, ref, _subject(row), ref=ref)
        if not commit and not merge.conflicts:
            raise GitFailed(
                f"there is nothing to merge: it would change nothing in {target}; if it is a handoff's, accept that"
            )
    except GitFailed as error:
        raise refusal(str(error)) from None
    if seen not in (None, merge.content):
        raise changed_since(merge.content)
    moment = now()
    entry = WorktreeMerge(
        merge_id=new_id("merge"),
        worktree=row,
        repository=tree.source.common,
        target=target,
        commit=merge.work,
        approved=commit,
        queued_by=actor.name,
        queued_at=moment,
    )
    try:
        with write(), transaction.atomic():
            row.merges.update(needs_person=False)
            entry.save(force_insert=True)
            PoolWorktree.objects.filter(pk=row.pk).update(content=merge.content, approved=merge.content)
            worktrees.emit("queued", actor, row, moment, merge_id=entry.pk, into=target)
            approve()
    except IntegrityError:
        raise refusal("it waits in the merge queue already") from None
    return entry


def changed_since(content: str) -> NexusError:
    """Return the error for a decision about work that is not what its person saw."""
    return refusal(
        "it, or the branch that it merges into, changed since you looked; look again, and decide about what it is now",
        seen=content,
    )


def withdraw(merge_id: str, by: str) -> WorktreeMerge:
    """Take a waiting entry out of the lane. Raises NOT_FOUND, and WORKTREE_REFUSED for one that does not wait."""
    moment = now()
    with write():
        entry = WorktreeMerge.objects.select_related("worktree__agent").filter(pk=merge_id).first()
        if entry is None:
            raise not_found("merge", merge_id[:200])
        waiting = WorktreeMerge.objects.filter(pk=merge_id, state=MergeState.WAITING)
        if not waiting.update(state=MergeState.WITHDRAWN, ended_at=moment, needs_person=False):
            raise refusal(f"its entry {merge_id} is {entry.state}")
        PoolWorktree.objects.filter(pk=entry.worktree_id).update(approved="")
        worktrees.emit("withdrawn", Actor(by), entry.worktree, moment, merge_id=merge_id, into=entry.target)
    entry.state, entry.ended_at, entry.needs_person = MergeState.WITHDRAWN, moment, False
    return entry


def entries(which: str, limit: int) -> list[WorktreeMerge]:
    """Return entries of all lanes: `open` ones in their order, or those that are `returned`, `merged` or `all`, the
    newest first."""
    rows = WorktreeMerge.objects.select_related("worktree__agent")
    if which == "open":
        return list(rows.open()[:limit])
    if which != "all":
        rows = rows.filter(state=which)
    return list(rows.order_by("-merge_id")[:limit])


@dataclass
class Claimed:
    """An entry that this process works on. The lock is free when it ends."""

    entry: WorktreeMerge
    lock: IO[bytes]


@dataclass(frozen=True)
class MergeResult:
    """The end of a claim; WAITING: others were at work, and it is tried again."""

    state: MergeState
    cause: ReturnCause | None = None
    why: str = ""
    conflicts: Sequence[MergeConflict] = field(default_factory=list)
    commit: str | None = None
    is_held: bool = False  # it waits until a person did something


class ClaimLost(Exception):
    """Another hub has claimed the entry meanwhile."""


class Lane(BackgroundWork[Claimed, "MergeResult | None"]):
    """Background work that merges the entries of each lane in turn."""

    name = "merges"
    threads = 2
    watches_log = True
    tick_seconds = 2.0

    def queues(self) -> Sequence[str]:
        open_ = WorktreeMerge.objects.open().order_by().values_list("repository", "target").distinct()
        return ["\n".join(each) for each in open_]

    def claim(self, lane: str) -> Claimed | None:
        repository, _, target = lane.rpartition("\n")
        if not Path(repository).is_dir():  # on another machine, or a disk that is not mounted
            return None
        try:
            lock = trees.lock(f"lane {lane}")
        except trees.Busy:
            return None
        moment = now()
        rows = WorktreeMerge.objects.open().filter(repository=repository, target=target)
        with write():
            entry = rows.filter(state=MergeState.RUNNING).first() or rows.first()
            if entry is None:
                return None
            free = Q(state=MergeState.WAITING) | Q(held_by=_holder()) | Q(held_until__lt=moment)
            try:
                with transaction.atomic():
                    claimed = WorktreeMerge.objects.filter(free, pk=entry.pk, epoch=entry.epoch).update(
                        state=MergeState.RUNNING,
                        step=MergeStep.MERGING,
                        epoch=entry.epoch + 1,
                        held_by=_holder(),
                        held_until=moment + HELD,
                    )
            except IntegrityError:  # another hub made another entry of the lane the running one
                return None
        entry.epoch += 1
        return Claimed(entry, lock) if claimed else None

    def act(self, item: Claimed) -> MergeResult | None:
        with item.lock:
            try:
                return _merged(item.entry)
            except ClaimLost:
                return None
            except trees.Busy as busy:
                return MergeResult(MergeState.WAITING, why=str(busy))
            except NotNow as why:
                return MergeResult(MergeState.WAITING, why=str(why), is_held=True)
            except (GitFailed, OSError) as error:
                return MergeResult(MergeState.RETURNED, ReturnCause.REFUSED, str(error))

    def given_up(self, item: Claimed, why: str) -> MergeResult:
        return MergeResult(MergeState.RETURNED, ReturnCause.REFUSED, why)

    def settle(self, item: Claimed, outcome: MergeResult | None) -> bool:
        if outcome is None:
            return True
        _settle(item.entry, outcome)
        return outcome.state != MergeState.WAITING


LANE_WORK = Lane()


def _holder() -> str:
    return f"{socket.gethostname()}:{CoreSettings.current().home}"


def _merged(entry: WorktreeMerge) -> MergeResult:
    """Merge, check and fast-forward to an entry; anew while its branch moves. Raises ClaimLost and GitFailed."""
    row = PoolWorktree.objects.select_related("agent").get(pk=entry.worktree_id)
    origin = worktrees.own(row).source
    trees.clear_scratch(entry.pk)
    while True:
        checks, why_none = approved(workspace_id_of(origin.top), origin.top)
        if checks:
            check_sandbox()  # first: each try leaves a commit in the origin
        made = entry.result or entry.approved
        merge, commit = merging.prepare(origin, entry.target, row.base, entry.commit, _subject(row), made)
        if merge.conflicts:
            conflicts = merging.conflicts_of(origin, merge)
            _record(entry, onto=merge.target)
            count = f"{len(conflicts)} file{'' if len(conflicts) == 1 else 's'}"
            why = f"{entry.target} changed the same places of {count}"
            return MergeResult(MergeState.RETURNED, ReturnCause.CONFLICT, why, conflicts)
        if not commit:
            taken = ("merge-base", "--is-ancestor", entry.result or "", merge.target)
            if entry.result and origin.git().run(*taken, expect=(0, 1)).code == 0:
                # A hub took it, and was killed before it recorded that.
                return MergeResult(MergeState.MERGED, commit=entry.result)
            why = f"it would change nothing in {entry.target} any more; see `git diff {entry.target} {row.branch}`"
            return MergeResult(MergeState.RETURNED, ReturnCause.REFUSED, why)
        if not entry.approved or not merging.is_as_approved(origin, entry.approved, commit):
            _record(entry, onto=merge.target)
            why = f"{entry.target} moved, and the merge would change it otherwise than was approved: look at it again"
            return MergeResult(MergeState.RETURNED, ReturnCause.CHANGED, why)
        _record(entry, step=MergeStep.CHECKING, onto=merge.target, result=commit)
        if why := _checked(entry, origin, commit, checks):
            return MergeResult(MergeState.RETURNED, ReturnCause.CHECKS, why[-TAIL:])
        _record(entry, step=MergeStep.TAKING)
        try:
            merging.fast_forward(origin, entry.target, merge.target, commit)
        except BranchMoved:
            _record(entry, step=MergeStep.MERGING)
            continue
        unchecked = f"Nothing was checked: {why_none} {entry.queued_by} approved the work." if why_none else ""
        return MergeResult(MergeState.MERGED, why=unchecked, commit=commit)


def _subject(row: PoolWorktree) -> str:
    return f"Merge {row.branch}, the work of {row.agent.agent_id}"


def _checked(entry: WorktreeMerge, origin: Origin, commit: str, checks: Mapping[str, Check]) -> str:
    """Run the project's reviewed checks on what would be taken; return why one fails. Raises ClaimLost and NotNow."""
    if not checks:
        return ""
    files = worktrees.local_files_of(origin.top)
    with trees.scratch(origin, commit, f"{entry.pk}-{entry.epoch}", files) as tree:
        return failures(checks, tree, partial(_record, entry))


def _record(entry: WorktreeMerge, **changes: object) -> None:
    """Store what a claim has come to. Raises ClaimLost."""
    with write():
        mine = WorktreeMerge.objects.filter(pk=entry.pk, epoch=entry.epoch, state=MergeState.RUNNING)
        if not mine.update(held_until=now() + HELD, **changes):
            raise ClaimLost
    for name, value in changes.items():
        setattr(entry, name, value)


def _settle(entry: WorktreeMerge, outcome: MergeResult) -> None:
    moment = now()
    over = outcome.state != MergeState.WAITING
    changes = {"state": outcome.state, "step": None, "held_until": None, "why": outcome.why}
    with write():
        mine = WorktreeMerge.objects.filter(pk=entry.pk, epoch=entry.epoch, state=MergeState.RUNNING)
        if mine.update(**changes, needs_person=outcome.is_held, ended_at=moment if over else None):
            _tell(entry, outcome, moment)


def _tell(entry: WorktreeMerge, outcome: MergeResult, moment: datetime) -> None:
    """Record what came of an entry's work, and tell its agent. Call it inside a transaction."""
    if outcome.state != MergeState.WAITING:
        row = PoolWorktree.objects.select_related("agent").get(pk=entry.worktree_id)
        about = {"merge_id": entry.pk, "into": entry.target}
        if outcome.state == MergeState.MERGED:
            WorktreeMerge.objects.filter(pk=entry.pk).update(result=outcome.commit)
            worktrees.record_merged(row, moment)
            unchecked = {"why": outcome.why} if outcome.why else {}
            worktrees.emit("merged", Actor(entry.queued_by), row, moment, commit=outcome.commit, **about, **unchecked)
        elif outcome.state == MergeState.RETURNED:
            looked = {"looked_at": None} if outcome.cause == ReturnCause.CHANGED else {}
            PoolWorktree.objects.filter(pk=row.pk).update(approved="", **looked)
            needs_person = not _sent_back(entry, row, outcome)
            WorktreeMerge.objects.filter(pk=entry.pk).update(
                cause=outcome.cause, conflicts=list(outcome.conflicts), needs_person=needs_person
            )
            worktrees.emit(
                "returned", Actor(entry.queued_by), row, moment, cause=outcome.cause, why=outcome.why[:200], **about
            )


def _sent_back(entry: WorktreeMerge, row: PoolWorktree, outcome: MergeResult) -> bool:
    """Queue a turn that tells the agent what to change. Return False if a person is needed, too: no turn could be
    queued, or the work came back before. What changed by others' work waits for its review again."""
    if outcome.cause == ReturnCause.CHANGED:
        return row.state == WorktreeState.OPEN
    if row.agent.ended_at is not None or outcome.cause == ReturnCause.REFUSED:
        return False
    try:
        turns.queue(
            Actor(entry.queued_by),
            row.agent,
            content=_message(entry, row, outcome),
            request_id=entry.pk,
            source="lane",
            moment=now(),
        )
    except NexusError:  # as many turns wait as may
        return False
    last = row.merges.filter(state=MergeState.MERGED).order_by("-merge_id").values_list("pk", flat=True).first()
    return not row.merges.filter(state=MergeState.RETURNED, pk__gt=last or "").exclude(pk=entry.pk).exists()


def _message(entry: WorktreeMerge, row: PoolWorktree, outcome: MergeResult) -> str:
    about = f"Your work on {row.branch} was not merged into {entry.target}; nothing of it is lost."
    if outcome.cause == ReturnCause.CHECKS:
        said = quoted(outcome.why)
        return (
            f"{about} Merged onto {entry.onto}, the project's checks fail. The end of their output:\n\n{said}\n\n"
            "Correct it in your worktree, and say when it is done."
        )
    parts = []
    for conflict in outcome.conflicts:
        theirs = "\n".join(conflict["theirs"]) or "unknown"
        text = conflict["hunk"] or "no text, or a change that has no hunks, such as a deletion"
        parts.append(f"{conflict['file']!r}\n{quoted(text)}\nThe other side:\n{quoted(theirs)}")
    conflicts = "\n\n".join(parts)[:WHOLE]
    return (
        f"{about} Both sides changed the same places. Lines that begin with | are quoted from the repository: the "
        f"first side of each conflict is {entry.target}, the second is yours.\n\n{conflicts}\n\n"
        f"In your worktree, which has no branch {entry.target}, `git merge {entry.onto}` merges it; keep the work of "
        "both sides. If you run no programs, take your change out of these places and make it elsewhere. Say when it "
        "is done."
    )
