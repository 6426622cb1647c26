"""The checks of submitted results, as a process that can run them takes, renews and settles them.

nexus/control/verification.py is that process. Of several, one at a time has a run: it takes it by a conditional update,
renews it while it works, and whoever lost it changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from django.db.models import F, QuerySet
from typing_extensions import TypedDict

from coordination.services import workspaces
from handoffs import notices, progress, services
from handoffs.config import HandoffSettings
from handoffs.models import UNFINISHED, CheckRun, CheckState, Handoff, HandoffStatus
from handoffs.steps import record, refresh_plan
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.caller import HUB_AGENT
from nexus.core.operations.parameters import Time

LEASE = timedelta(seconds=60)  # without a sign of life another process takes the run
RETRY = timedelta(seconds=15)  # until a run that was not possible is tried again
LONGEST_REASON = 8_000  # characters that a holder is told of what failed
OUTPUT_IN_REASON = 1_500  # characters of one check's output in it
NAMED = 20  # files that a line of the fact sheet names


class CheckReceipt(TypedDict):
    """What came of one criterion."""

    criterion: str  # as it was given
    passed: bool
    command: str | None
    code: int | None  # None where it was not a command, or was ended
    seconds: float | None
    output: str | None  # its beginning and end
    why: str | None  # it did not pass


class CheckedFile(TypedDict):
    path: str
    added: int | None  # lines; None for a binary file
    removed: int | None


class Facts(TypedDict):
    """What the hub itself found out about the work, beside what its agent says."""

    directory: str
    branch: str | None
    base: str | None  # the commit that it is compared with
    commit: str | None  # the last commit
    uncommitted: bool
    commits: int
    subjects: list[str]  # of the latest commits
    stat: str  # as git counts files and lines
    files: list[CheckedFile]  # the first ones
    cut: bool  # there is more than was read
    untouched: list[str]  # patterns that were reserved, and no changed file fits
    unreserved: list[str]  # changed files that no reservation of the agent covered
    why: str | None  # it could not be read


class CheckRunRow(TypedDict):
    """The checks of one result."""

    state: str
    claim_epoch: int
    why: str | None
    receipts: list[CheckReceipt]
    facts: Facts | None
    created_at: Time
    ended_at: Time | None


def rows_of(handoff: Handoff) -> list[CheckRunRow]:
    """Return the checks of a handoff's results, oldest first."""
    return [
        {
            "state": str(run.state),
            "claim_epoch": run.claim_epoch,
            "why": run.why,
            "receipts": run.receipts,
            "facts": run.facts,
            "created_at": iso(run.created_at),
            "ended_at": iso(run.ended_at),
        }
        for run in CheckRun.objects.filter(handoff=handoff).order_by("pk")
    ]


def sheet(facts: Facts) -> list[tuple[str, str]]:
    """Return a fact sheet as names and values for people, without what is empty."""
    rows = {
        "Not read": facts["why"],
        "Directory": facts["directory"],
        "Branch": facts["branch"],
        "Since commit": facts["base"],
        "Last commit": facts["commit"],
        "Commits": "; ".join(facts["subjects"]) and f"{facts['commits']}: {'; '.join(facts['subjects'])}",
        "Uncommitted changes": "yes" if facts["uncommitted"] else "",
        "Changes": facts["stat"],
        "Files": _names([each["path"] for each in facts["files"]]),
        "Reserved, not changed": _names(facts["untouched"]),
        "Changed, not reserved": _names(facts["unreserved"]),
    }
    return [(name, value) for name, value in rows.items() if value]


def _names(paths: Sequence[str]) -> str:
    return ", ".join(paths[:NAMED]) + (" and others" if len(paths) > NAMED else "")


def due(limit: int) -> list[CheckRun]:
    """Return runs that wait for a process, or whose process gave no sign of life: of many, any."""
    # Not the oldest: if their directories are on other machines, this process would see no others.
    some = CheckRun.objects.filter(state__in=UNFINISHED, due_at__lte=now()).order_by("?").values("pk")[:limit]
    rows = CheckRun.objects.filter(pk__in=some).select_related("handoff__workspace")
    return list(rows.defer("handoff__payload", "handoff__result").order_by("due_at"))


def take(run_id: int) -> CheckRun | None:
    """Take a run that is due; None where another process was first."""
    with write():
        moment = now()
        taken = CheckRun.objects.filter(pk=run_id, state__in=UNFINISHED, due_at__lte=moment).update(
            state=CheckState.RUNNING, epoch=F("epoch") + 1, due_at=moment + LEASE, began_at=moment
        )
        rows = CheckRun.objects.select_related("handoff__workspace")
        return rows.get(pk=run_id) if taken else None


def renew(run: CheckRun) -> bool:
    """Keep a run for another lease; return whether this process still has it."""
    with write(run.handoff.workspace_id):
        return bool(_own(run).update(due_at=now() + LEASE))


def put_off(run: CheckRun, why: str) -> None:
    """Let a run wait that is not possible now, with the reason."""
    with write(run.handoff.workspace_id):
        _own(run).update(state=CheckState.WAITING, why=why, due_at=now() + RETRY)


def settle(run: CheckRun, receipts: Sequence[CheckReceipt], facts: Facts) -> None:
    """Store the receipts; complete the handoff, ask its verifier, or give it back with what failed.

    Nothing happens where another process has the run, or the handoff got its verdict meanwhile.
    """
    project = workspaces.directory_of(run.handoff.workspace)
    refresh_plan(project, run.handoff_id)
    with write():
        moment = now()
        failed = [each for each in receipts if not each["passed"]]
        state = CheckState.FAILED if failed else CheckState.PASSED
        if not _own(run).update(state=state, receipts=list(receipts), facts=facts, why=None, ended_at=moment):
            return
        handoff = Handoff.objects.select_related("workspace").get(pk=run.handoff_id)
        if (handoff.status, handoff.claim_epoch) != (HandoffStatus.SUBMITTED, run.claim_epoch):
            return
        doer, names = str(handoff.claimed_by), [each["criterion"] for each in failed]
        reason = {"reason": ", ".join(names)[:500]} if names else {}
        record(handoff, "checked", None, moment, outcome=str(state), **reason)
        if failed:
            if CheckRun.objects.filter(handoff=handoff, state=CheckState.FAILED).count() <= _most_returns():
                progress.give_back(handoff, progress.By(HUB_AGENT), in_words(failed), moment)
        elif handoff.verifier is None:
            services.finish(handoff, HandoffStatus.COMPLETED, doer, project, handoff.result, moment)
            notices.ended(handoff, doer, "completed", handoff.result, moment)
            notices.notify(handoff, doer, "passed its checks", "It is complete.", moment, by=HUB_AGENT)
        else:
            notices.submitted(handoff, doer, handoff.result, moment)


def _most_returns() -> int:
    return HandoffSettings.current().handoff_check_returns


def _own(run: CheckRun) -> QuerySet[CheckRun]:
    return CheckRun.objects.filter(pk=run.pk, state=CheckState.RUNNING, epoch=run.epoch)


def in_words(failed: Sequence[CheckReceipt]) -> str:
    """Describe what failed to the agent that did the work."""
    parts = []
    for each in failed:
        said = (each["output"] or "").strip()[-OUTPUT_IN_REASON:]
        parts.append(f"{each['criterion']}: {each['why']}" + (f"\n{said}" if said else ""))
    return "Nexus checked the result. " + "\n\n".join(parts)[:LONGEST_REASON]
