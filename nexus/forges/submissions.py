"""The background work that commits work for a forge when its agent submits it, so that nothing later is published with
it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from django.db.models import Q

from coordination.log.emit import emit
from coordination.models import Event
from handoffs.lifecycle import OPERATOR
from handoffs.models import Handoff, HandoffStatus
from nexus.control.runners.git import GitFailed
from nexus.control.worktrees import trees, worktrees
from nexus.control.worktrees.trees import Tree
from nexus.core.background_work import BackgroundWork
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.forges.models import STREAM, ForgeKind
from nexus.forges.push import KEPT, is_of, stored

MOST_DUE = 100  # handoffs looked at in one round
# Until a worktree is tried again that others read, or where git failed, or that is of another repository.
BUSY_SECONDS, RETRY_SECONDS = 1.0, 60.0


class Submission(NamedTuple):
    """A submitted handoff, and the worktree that holds its work."""

    handoff: Handoff
    tree: Tree


class Submissions(BackgroundWork[Submission, "str | None"]):
    """Background work: a submitted handoff is a queue."""

    name = "forge-work"
    threads = 2
    watches_log = True
    tick_seconds = 2.0

    def __init__(self) -> None:
        self._retry_at: dict[str, float] = {}  # by handoff, where nothing was recorded

    def queues(self) -> Sequence[str]:
        moment = monotonic()
        self._retry_at = {key: at for key, at in self._retry_at.items() if at > moment}
        return [each.handoff.pk for each in _due() if each.handoff.pk not in self._retry_at]

    def claim(self, queue: str) -> Submission | None:
        return None if queue in self._retry_at else next(iter(_due(Q(pk=queue))), None)

    def act(self, item: Submission) -> str | None:
        handoff, pause = item.handoff, RETRY_SECONDS
        try:
            if is_of(handoff.workspace.root_realpath, item.tree):
                return trees.keep(item.tree, f"Work on {handoff.pk}")
        except trees.Busy:
            pause = BUSY_SECONDS
        except (GitFailed, OSError):  # a person learns of it when it is to be pushed
            pass
        self._retry_at[handoff.pk] = monotonic() + pause
        return None

    def given_up(self, item: Submission, why: str) -> None:
        self._retry_at[item.handoff.pk] = monotonic() + RETRY_SECONDS

    def settle(self, item: Submission, outcome: str | None) -> bool:
        handoff = item.handoff
        if outcome is None:
            return False
        with write():
            asked = {"pk": handoff.pk, "claim_epoch": handoff.claim_epoch, "status__in": DONE}
            if Handoff.objects.filter(**asked).exists() and stored(handoff) is None:  # else it was returned meanwhile
                emit(
                    workspace_id=handoff.workspace_id,
                    stream=STREAM,
                    type=KEPT,
                    actor=None,
                    payload={"commit": outcome, "branch": item.tree.branch, "claim_epoch": handoff.claim_epoch},
                    moment=now(),
                    handoff_id=handoff.pk,
                )
        return False


DONE = (HandoffStatus.SUBMITTED, HandoffStatus.COMPLETED)
ANY = Q()
SUBMISSIONS = Submissions()


def _due(among: Q = ANY) -> list[Submission]:
    """Return the work that goes to a forge once it is approved, and whose commit is not recorded yet."""
    of_issue = Q(forge_issue__isnull=False, forge_issue__ended="", status__in=DONE)
    of_remote = Q(workspace__forges__kind=ForgeKind.GIT, verifier=OPERATOR, status=HandoffStatus.SUBMITTED)
    rows = Handoff.objects.filter(among, of_issue | of_remote, claimed_by__isnull=False).defer("payload", "result")
    found = list(rows.select_related("workspace").order_by("-updated_at", "pk").distinct()[:MOST_DUE])
    events = Event.objects.filter(handoff_id__in=[row.pk for row in found], type=KEPT)
    known = {(event.handoff_id, event.payload["claim_epoch"]) for event in events}
    return [
        Submission(row, tree)
        for row in found
        if (row.pk, row.claim_epoch) not in known
        and (tree := worktrees.tree_of(str(row.claimed_by))) is not None
        and Path(tree.path).is_dir()  # else on another machine
    ]
