"""Agents' worktrees: created with the agent, compared, merged, kept, discarded."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from django.db import DatabaseError

from handoffs import checks
from handoffs.checks import LocalFiles
from inbox import receipts
from nexus.control.agents import pool
from nexus.control.errors import ControlCode
from nexus.control.events import emit_event
from nexus.control.models import PoolAgent, PoolWorktree, Turn, TurnStatus, WorktreeState
from nexus.control.permissions import rules
from nexus.control.permissions.members import Actor, check_authority, refused
from nexus.control.runners.git import GitFailed, NothingToClone, origin_of
from nexus.control.worktrees import trees
from nexus.control.worktrees.trees import FOLDER, Survey, Tree
from nexus.core import foreign_files
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.database.store import write
from nexus.core.operations.errors import NexusError, not_found

NAMED = 20  # of what a removal would take
NAME_LENGTH = 200  # of a name that a refusal quotes
Made = TypeVar("Made")


def create(actor: Actor, order: pool.Order, made: Callable[[pool.Order, pool.NewWorktree | None, str], Made]) -> Made:
    """Create an agent with `made`, in its own worktree or in its directory itself; a refusal leaves nothing behind.

    Where the order leaves that open, an agent that may write and got no paths for that has a worktree. If there is
    nothing to clone, `made` is told why it has none. Raises WORKTREE_REFUSED, and the errors of `made`.
    """
    if order.worktree is False or (order.worktree is None and order.write_paths is not None):
        return made(order, None, "")
    pool.check_name(order.agent_id)
    parent = pool.parent_of(actor, order.parent_agent_id)
    cwd = pool.real_directory(order.cwd or pool.usual_directory(parent, order.asked_in), "cwd")
    may_write = _may_write(order, parent, cwd)
    if order.worktree is None and (not may_write or pool.parent_of_clone(cwd) is not None):
        return made(order, None, "")
    in_place, order = order, replace(order, cwd=cwd, agent_id=order.agent_id or secrets.token_hex(4))
    if order.write_paths is None and may_write:
        order = replace(order, write_paths=[cwd])
    pool.granted(order, cwd, parent, actor)  # before git works in vain
    pool.check_exists(cwd, "cwd")
    try:
        tree = _tree(order, cwd, parent, actor)
    except GitFailed as error:
        if order.worktree is None and isinstance(error, NothingToClone):
            return made(in_place, None, f"It works in {cwd} itself: {error}.")
        raise refusal(f"{error}; with `worktree: false` the agent works in the directory itself") from None
    try:
        return made(order, pool.NewWorktree(tree.as_kept, tree.moved), "")
    except BaseException:
        with contextlib.suppress(GitFailed, DatabaseError):  # report the refusal; `nexus doctor` finds what is left
            if not PoolWorktree.objects.filter(path=tree.path).exists():  # else the failure came after the commit
                trees.remove(tree)  # nobody has used it
        raise


def _may_write(order: pool.Order, parent: PoolAgent | None, cwd: str) -> bool:
    """Return whether an agent without given write paths may write in its own worktree: if it could in the origin."""
    preset = order.preset or rules.DEFAULT
    return preset != rules.Preset.WORKER and (parent is None or rules.may_write(parent.permissions, cwd))


def _tree(order: pool.Order, cwd: str, parent: PoolAgent | None, actor: Actor) -> Tree:
    """Make a worktree. Raises GitFailed, and if somebody asked for it NOT_PERMITTED for a repository that is not wholly
    below the parent's directory."""
    within = next((row for row in _there() if rules.within(cwd, (row.path,))), None)
    if within and within.agent.ended_at is not None and order.worktree is None:
        raise NothingToClone(f"it goes on in the worktree of {within.agent.agent_id}, which has ended")
    origin = own(within).as_origin if within else origin_of(cwd)
    if parent is not None and not rules.within(origin.top, (parent.cwd,)):
        if order.worktree is None:
            raise NothingToClone(f"the whole repository does not lie below its parent's directory, {parent.cwd}")
        raise refused("cwd", f"The whole repository must lie below the parent's directory, {parent.cwd}.")
    home = CoreSettings.current().home / FOLDER
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = (order.agent_id or "").lstrip(".")
    if not name or name.endswith((".", ".lock")):
        name = secrets.token_hex(4)
    path = str(Path(os.path.realpath(home)) / f"{name}-{secrets.token_hex(4)}")
    tree = trees.make(origin, path, name, local_files_of(origin.top))
    if not Path(tree.in_worktree(cwd)).is_dir():
        trees.remove(tree)
        raise NothingToClone(f"{cwd} is not in the last commit, from which it is made")
    return tree


def local_files_of(origin: str) -> LocalFiles:
    """Return the local files that worktrees of an origin get: those of the project that it was made from at last."""
    while row := PoolWorktree.objects.at(origin):
        origin = row.origin
    return checks.approved_files(origin)


def _there() -> list[PoolWorktree]:
    return list(PoolWorktree.objects.exclude(state=WorktreeState.DISCARDED))


def get(actor: Actor, agent_id: str, worktree_id: str | None) -> PoolWorktree:
    """Return the worktree of an agent that has or had this name; the latest, unless its id is given.

    Raises NOT_FOUND and NOT_PERMITTED.
    """
    row = _latest(agent_id, worktree_id)
    if row is None:
        raise not_found("worktree of agent", agent_id[:200])
    check_authority(actor, row.agent, "look into the worktree of")
    return row


def compare(actor: Actor, agent_id: str, worktree_id: str | None = None) -> tuple[PoolWorktree, Survey]:
    """Return what the merge of an agent's worktree changes. Raises the errors of `get`, and WORKTREE_REFUSED."""
    row = get(actor, agent_id, worktree_id)
    try:
        return row, trees.survey(own(row))
    except GitFailed as error:
        raise refusal(str(error)) from None


def record_merged(row: PoolWorktree, moment: datetime) -> None:
    """Record a merge of a worktree, inside the caller's transaction: it needs nobody any more."""
    PoolWorktree.objects.filter(pk=row.pk).update(merged_at=moment)
    row.merges.update(needs_person=False)


def keep(actor: Actor, agent_id: str, worktree_id: str | None = None) -> PoolWorktree:
    """Commit the uncommitted changes on the worktree's branch, and keep both. Raises the errors of `decided`, and
    WORKTREE_REFUSED."""
    row = decided(actor, agent_id, worktree_id, "keep")
    try:
        trees.keep(own(row), f"Work of {row.agent.agent_id}, kept")
    except GitFailed as error:
        raise refusal(str(error)) from None
    _settle(row, WorktreeState.KEPT, actor)
    row.state = WorktreeState.KEPT
    return row


def discard(
    actor: Actor,
    agent_id: str,
    worktree_id: str | None = None,
    *,
    changes_too: bool,
    lost_too: bool,
    end: Callable[[], object] | None = None,
) -> PoolWorktree:
    """Remove a worktree and its branch. `end` ends its agent, in the same transaction.

    Raises the errors of `end`; WORKTREE_REFUSED, with the names of what would go, if it holds unmerged changes, unless
    `changes_too`: they stay under a ref of the origin. So it does for what no ref can keep, unless `lost_too`.
    """
    row = decided(actor, agent_id, worktree_id, "discard")
    _check_unused(row, by_others=end is not None)
    tree = own(row)
    try:
        with trees.removal(tree, f"Discarded {row.branch}", changes_too=changes_too, lost_too=lost_too), write():
            if end is not None:
                end()
            _check_unused(row)  # again: somebody may have come meanwhile
            _settle(row, WorktreeState.DISCARDED, actor)
    except trees.Unsaved as error:
        raise _losing(error) from None
    except (GitFailed, OSError) as error:
        raise refusal(str(error)) from None
    row.state = WorktreeState.DISCARDED
    return row


def finish_discards() -> None:
    """Remove what a hub that was killed left of worktrees that it discarded."""
    for row in PoolWorktree.objects.filter(state=WorktreeState.DISCARDED).select_related("agent"):
        with contextlib.suppress(OSError):
            if foreign_files.status(row.path) is not None:
                trees.finish_removal(own(row))


def _check_unused(row: PoolWorktree, *, by_others: bool = False) -> None:
    for agent in PoolAgent.objects.living():
        if by_others and agent.pk == row.agent.pk:
            continue
        if rules.within(agent.cwd, (row.path,)):
            raise refusal(f"{agent.agent_id!r} works in this directory; end it first")
    child = PoolWorktree.objects.filter(state=WorktreeState.OPEN, origin=row.path).select_related("agent").first()
    if child is not None:
        raise refusal(f"that of {child.agent.agent_id!r} merges into it; keep or discard that one first")
    if row.merges.open().exists():
        raise refusal("it is in the merge queue; withdraw it there first")


def _losing(error: trees.Unsaved) -> NexusError:
    names = [name[:NAME_LENGTH] for name in error.names[:NAMED]]
    more = f" and {len(error.names) - NAMED} more" if len(error.names) > NAMED else ""
    listed = f": {', '.join(map(repr, names))}{more}" if names else ""
    what = {
        "changes_too": "merge or keep it, or discard its changes, too; a ref of its origin then keeps them",
        "lost_too": "to remove it with that for good, confirm `lost_too`",
    }[error.field]
    return refusal(f"{error}{listed}; {what}", field=error.field, names=names)


def decided(actor: Actor, agent_id: str, worktree_id: str | None, verb: str) -> PoolWorktree:
    """Return the worktree for an operator, or an agent above its own, to act on, while no agent writes in it."""
    row = get(actor, agent_id, worktree_id)
    if actor.agent is not None:
        if actor.agent.pk == row.agent.pk:
            raise refused("lineage", f"An agent does not {verb} its own worktree: its parent does, or an operator.")
        if not rules.may_write(actor.agent.permissions, row.origin):
            raise refused("write_paths", f"{actor.name!r} may not write at {row.origin}.")
    for turn in Turn.objects.open().filter(status=TurnStatus.RUNNING).select_related("agent"):
        if rules.within(turn.agent.cwd, (row.path,)):
            raise refusal(f"{turn.agent.agent_id!r} is running a turn there; wait for its end, or cancel it")
    return row


def _settle(row: PoolWorktree, state: WorktreeState, actor: Actor) -> None:
    moment = now()
    with write():
        PoolWorktree.objects.filter(pk=row.pk).update(state=state)
        row.merges.update(needs_person=False)
        emit(state.value, actor, row, moment)


def record_commits(row: PoolWorktree, survey: Survey) -> None:
    """Record which commits of a worktree name mail to its agent."""
    receipts.record_commits(row.agent.agent_id, receipts.named_in(survey.naming), f"on {row.branch}")


def emit(what: str, actor: Actor, row: PoolWorktree, moment: datetime, **payload: object) -> None:
    emit_event(f"worktree.{what}", actor.name, row.agent, moment, branch=row.branch, **payload)


def tree_of(agent_id: str) -> Tree | None:
    """Return the latest worktree of an agent that has or had this name; None if it has none."""
    row = _latest(agent_id)
    return None if row is None else own(row)


def _latest(agent_id: str, worktree_id: str | None = None) -> PoolWorktree | None:
    rows = PoolWorktree.objects.exclude(state=WorktreeState.DISCARDED).select_related("agent")
    rows = rows.filter(agent__agent_id=agent_id, **({} if worktree_id is None else {"pk": worktree_id}))
    return rows.order_by("-created_at", "-worktree_id").first()


def own(row: PoolWorktree) -> Tree:
    """Return the worktree of a row."""
    tree = Tree(**{name: getattr(row, name) for name in trees.STORED})
    objects = str(Path(row.git_dir).parent.parent / "objects")  # of the repository that an old version linked it to
    return replace(tree, borrowed=tuple(tree.borrowed) or (objects,))


def refusal(why: str, **details: object) -> NexusError:
    why = re.sub(r"\s+", " ", why)
    return NexusError(ControlCode.WORKTREE_REFUSED, f"The worktree: {why}.", {"why": why, **details})
