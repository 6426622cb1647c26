"""The checks of submitted results, as a process that can run them takes, renews and settles them.

nexus/control/worktrees/verification.py is that process. Of several, one at a time has a run: it takes it by a
conditional update, renews it while it works, and whoever lost it changes nothing. What an outcome does to the work is
in `verification`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, NotRequired, TypeVar

from django.db.models import F, Q, QuerySet
from pydantic import Field
from typing_extensions import TypedDict

from handoffs.models import UNFINISHED, AbstractCheckRun, CheckState
from handoffs.verification import HUB, WorkKind, kind_named, kinds
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.pages import newest
from nexus.core.operations.parameters import Time

R = TypeVar("R", bound=AbstractCheckRun)

LEASE = timedelta(seconds=60)  # without a sign of life another process takes the run
RETRY = timedelta(seconds=15)  # until a run that was not possible is tried again
LONGEST_REASON = 8_000  # characters that a holder is told of what failed
RETURNS = 3  # to the holder of a result that failed; the next one that fails needs a person
OUTPUT_IN_REASON = 1_500  # characters of one check's output in it
NAMED = 20  # files that a line of the fact sheet names
SOON = timedelta(seconds=60)  # a run that no process takes for so long is worth a look
MOST_SHOWN = 20  # results of a work whose checks are shown
TONES = {"passed": "good", "failed": "bad", "waiting": "warn", "running": "info"}
NOBODY_CHECKS = "no server with a pool has its directory; start `nexus serve --control` there"


class CriterionResult(TypedDict):
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
    receipts: list[CriterionResult]
    facts: Facts | None
    created_at: Time
    ended_at: Time | None


def _kind_of(run: AbstractCheckRun) -> WorkKind[Any, Any]:
    return next(kind for kind in kinds() if kind.model is type(run))


class Checked(TypedDict):
    checks: Annotated[list[CheckRunRow], Field(description="What Nexus tested of each result, and its own facts.")]
    checks_left_off: NotRequired[
        Annotated[int, Field(description=f"How many older results there are than the {MOST_SHOWN} shown.")]
    ]


def of_results(runs: QuerySet[R]) -> Checked:
    """Return the checks of a work's newest results, oldest first."""
    found, older = newest(runs, MOST_SHOWN)
    rows: list[CheckRunRow] = [
        {
            "state": str(run.state),
            "claim_epoch": run.claim_epoch,
            "why": run.why,
            "receipts": run.receipts,
            "facts": run.facts,
            "created_at": iso(run.created_at),
            "ended_at": iso(run.ended_at),
        }
        for run in found
    ]
    return {"checks": rows, "checks_left_off": older} if older else {"checks": rows}


def summaries(runs: QuerySet[R]) -> dict[str, Any]:
    """Return what `handoffs/check_runs.html` shows of a work's results."""
    results = of_results(runs)
    checks = [
        {**run, "tone": TONES.get(run["state"], ""), "sheet": sheet(run["facts"]) if run["facts"] else []}
        for run in results["checks"]
    ]
    return {**results, "checks": checks}


def runs_in_words(results: Mapping[str, Any]) -> dict[str, str]:
    """Return `of_results` as names and values for a terminal."""
    older = results.get("checks_left_off", 0)
    shown = {"older_checks": f"{older}, not shown"} if older else {}
    for number, run in enumerate(results["checks"], older + 1):
        title = f"checks_{number}"
        shown[title] = run["why"] or run["state"]
        for each in run["receipts"]:
            shown[f"{title} {each['criterion']}"] = f"{each['why'] or 'passed'}\n{each['output'] or ''}".strip()
        facts = sheet(run["facts"]) if run["facts"] else []
        shown |= {f"{title} {name.lower()}": value for name, value in facts}
    return shown


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


def request(run: AbstractCheckRun, moment: datetime) -> None:
    """Ask for the checks of a submitted result: store a new run. Call it inside a transaction."""
    run.state, run.due_at, run.created_at = CheckState.WAITING, moment, moment
    run.save(force_insert=True)


def make_due(workspace_id: str, moment: datetime) -> None:
    """Let what waits in a workspace be tried at once. Call it inside a transaction."""
    for kind in kinds():
        waiting = kind.runs().filter(**{f"{kind.column}__workspace": workspace_id}, state=CheckState.WAITING)
        kind.model._default_manager.filter(pk__in=waiting.values("pk")).update(due_at=moment)


def stuck(moment: datetime) -> Q:
    """Return the condition that a run cannot go on, or that no process runs it."""
    return Q(state__in=UNFINISHED) & (Q(why__isnull=False) | Q(due_at__lt=moment - SOON))


def why_stuck(run: AbstractCheckRun) -> str:
    """Return for a person why a run does not go on."""
    return f"its checks wait: {run.why or NOBODY_CHECKS}"[:500]


def failures(run: AbstractCheckRun) -> str:
    """Return the criteria that a run found unmet."""
    return ", ".join(result["criterion"] for result in run.receipts if not result["passed"])


def due(limit: int) -> list[AbstractCheckRun]:
    """Return runs that wait for a process, or whose process gave no sign of life: of many, any."""
    found: list[AbstractCheckRun] = []
    for kind in kinds():
        # Not the oldest: if their directories are on other machines, this process would see no others.
        rows = kind.model._default_manager.filter(state__in=UNFINISHED, due_at__lte=now())
        found += kind.runs().filter(pk__in=rows.order_by("?").values("pk")[:limit])
    return sorted(found, key=lambda run: run.due_at)


def name_of(run: AbstractCheckRun) -> str:
    """Return the name of a run among those of all kinds, which `claim` takes."""
    return f"{_kind_of(run).name} {run.pk}"


def claim(name: str) -> AbstractCheckRun | None:
    """Claim a run that is due; None where another process was first."""
    kind, _, key = name.partition(" ")
    runs = kind_named(kind).runs()
    with write():
        moment = now()
        taken = runs.filter(pk=int(key), state__in=UNFINISHED, due_at__lte=moment).update(
            state=CheckState.RUNNING, epoch=F("epoch") + 1, due_at=moment + LEASE, began_at=moment
        )
        found: AbstractCheckRun | None = runs.get(pk=int(key)) if taken else None
        return found


def renew(run: AbstractCheckRun) -> bool:
    """Keep a run for another lease; return whether this process still has it."""
    with write(run.work.workspace.pk):
        return bool(_own(run).update(due_at=now() + LEASE))


def put_off(run: AbstractCheckRun, why: str) -> None:
    """Let a run wait that is not possible now, with the reason."""
    with write(run.work.workspace.pk):
        _own(run).update(state=CheckState.WAITING, why=why, due_at=now() + RETRY)


def settle_run(run: AbstractCheckRun, results: Sequence[CriterionResult], facts: Facts) -> None:
    """Store the results; complete the work, ask its verifier, or give it back with what failed.

    Nothing happens where another process has the run, or the result got its verdict meanwhile.
    """
    kind = _kind_of(run)
    kind.refresh(run)
    with write():
        moment = now()
        failed = [each for each in results if not each["passed"]]
        state = CheckState.FAILED if failed else CheckState.PASSED
        if not _own(run).update(state=state, receipts=list(results), facts=facts, why=None, ended_at=moment):
            return
        work = kind.waiting(run)
        if work is None:
            return
        reason = {"reason": ", ".join(each["criterion"] for each in failed)[:500]} if failed else {}
        kind.record(work, "checked", HUB, moment, outcome=str(state), **reason)
        if not failed:
            kind.passed(work, moment)
        elif kind.runs().filter(**{kind.column: work}, state=CheckState.FAILED).count() <= RETURNS:
            kind.give_back(work, HUB, describe_failures(failed), moment)


def _own(run: AbstractCheckRun) -> QuerySet[AbstractCheckRun]:
    rows: QuerySet[AbstractCheckRun] = type(run)._default_manager.all()
    return rows.filter(pk=run.pk, state=CheckState.RUNNING, epoch=run.epoch)


def describe_failures(failed: Sequence[CriterionResult]) -> str:
    """Describe what failed to the agent that did the work."""
    parts = []
    for each in failed:
        said = (each["output"] or "").strip()[-OUTPUT_IN_REASON:]
        parts.append(f"{each['criterion']}: {each['why']}" + (f"\n{said}" if said else ""))
    return "Nexus checked the result. " + "\n\n".join(parts)[:LONGEST_REASON]
