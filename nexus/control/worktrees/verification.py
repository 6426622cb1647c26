"""The checks of submitted results: commands, files and facts, in the sandbox.

Work in a worktree is tested as the branch that it merges into will have it, in a work tree of that merge, where checks
may write. Other work is tested in the project's directory, which they only read. Without a sandbox nothing runs, and
the result waits.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

from handoffs import check_runs, checks
from handoffs.check_runs import CheckedFile, CriterionResult, Facts
from handoffs.checks import Approved, Check, Criteria
from handoffs.models import AbstractCheckRun
from handoffs.transitions import compare_reserved
from inbox import receipts
from nexus.control.config import ControlSettings
from nexus.control.models import PoolAgent, PoolWorktree, WorktreeState
from nexus.control.permissions import rules
from nexus.control.permissions.rules import Permissions, Preset
from nexus.control.runners import sandbox
from nexus.control.runners.base import RunnerFailed
from nexus.control.runners.git import GitFailed
from nexus.control.worktrees import trees, worktrees
from nexus.core import foreign_files
from nexus.core.background_work import BackgroundWork, repeated
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError
from nexus.core.processes import NEUTRAL, environment, watch
from nexus.hooks import setup_record

KEPT = 6_000  # bytes of a command's output, at its beginning and at its end
LEASE_SECONDS = 20.0  # between two renewals, beside those while a command runs
MOST_FILES = 200  # that a fact sheet names
MOST_DUE = 20  # runs looked at in one round


class NotNow(Exception):
    """The checks cannot be run now; the message is for people."""


class RunLost(Exception):
    """Another process has the run, or the result got its verdict."""


class WorkLocation(NamedTuple):
    """Where work lies: the project's directory in it, and the worktree, if it is one."""

    directory: str
    row: PoolWorktree | None


class CheckResults(NamedTuple):
    """The results of all criteria, and the facts."""

    results: list[CriterionResult]
    facts: Facts


class Verification(BackgroundWork[AbstractCheckRun, "CheckResults | NotNow | RunLost"]):
    """Background work that runs the checks of results, of those projects whose directory is on this machine."""

    name = "checks"
    threads = 2
    tick_seconds = 1.0
    idle_seconds = 1.0

    def queues(self) -> Sequence[str]:
        if not ControlSettings.current().control:
            return ()
        return [
            check_runs.name_of(run) for run in check_runs.due(MOST_DUE) if Path(location_of(run).directory).is_dir()
        ]

    def claim(self, queue: str) -> AbstractCheckRun | None:
        return check_runs.claim(queue)

    def act(self, item: AbstractCheckRun) -> CheckResults | NotNow | RunLost:
        try:
            with repeated(partial(check_runs.renew, item), LEASE_SECONDS, self.name):  # git may take long
                return verdict_on(item)
        except (NotNow, RunLost) as why:
            return why

    def given_up(self, item: AbstractCheckRun, why: str) -> NotNow:
        return NotNow(why)

    def settle(self, item: AbstractCheckRun, outcome: CheckResults | NotNow | RunLost) -> bool:
        if isinstance(outcome, NotNow):
            check_runs.put_off(item, str(outcome))
        elif isinstance(outcome, CheckResults):
            check_runs.settle_run(item, outcome.results, outcome.facts)
        return False


VERIFICATION = Verification()


def location_of(run: AbstractCheckRun) -> WorkLocation:
    """Return where the work lies whose result is checked."""
    root, agent = run.work.workspace.root_realpath, _worker_of(run)
    row = PoolWorktree.objects.at(root) or (None if agent is None else PoolWorktree.objects.at(agent.cwd))
    if row is None or rules.within(root, (row.path,)):
        return WorkLocation(root, row)
    if rules.within(root, (row.origin,)):
        return WorkLocation(os.path.normpath(os.path.join(row.path, os.path.relpath(root, row.origin))), row)
    return WorkLocation(row.path, row)


def _worker_of(run: AbstractCheckRun) -> PoolAgent | None:
    return PoolAgent.objects.filter(agent_id=run.work.doer).order_by("-created_at").first()


def check_sandbox() -> None:
    """Check that there is a sandbox to run checks in. Raises NotNow."""
    state = sandbox.state()
    if not state.works:
        raise NotNow(f"checks run only in a sandbox, and {state.why}")


def verdict_on(run: AbstractCheckRun) -> CheckResults:
    """Test all criteria of a result. Raises NotNow and RunLost."""
    check_sandbox()
    if (agent := _worker_of(run)) is not None and agent.host is not None:
        raise NotNow(f"the work is on {agent.host}, where Nexus checks nothing")
    criteria, location = checks.parse(run.work.criteria), location_of(run)
    if location.row is not None and location.row.state == WorktreeState.DISCARDED:
        raise NotNow("the worktree that held the work was discarded")
    commands = _commands(run, criteria)
    facts, changed, seen = _facts(run, criteria, location)
    results = _tested(run, location, seen, commands, criteria.files) if commands or criteria.files else []
    results += [_result(f"unchanged:{path}", path not in changed, why="it was changed") for path in criteria.unchanged]
    return CheckResults(results, facts)


def _commands(run: AbstractCheckRun, criteria: Criteria) -> dict[str, Check]:
    """Return the commands to run, as they were approved. Raises NotNow where the file says something else now."""
    if not criteria.commands:
        return {}
    known = approved(run.work.workspace.pk, run.work.workspace.root_realpath).checks
    unknown = [name for name in criteria.commands if name not in known]
    if unknown:
        raise NotNow(f"{checks.FILE} has no check {unknown[0]!r} any more")
    return {name: known[name] for name in criteria.commands}


def approved(workspace_id: str, root: str) -> Approved:
    """Return the approved checks of a project. Raises NotNow where an operator has to look at its file first."""
    try:
        return checks.approved(workspace_id, root)
    except NexusError as error:
        raise NotNow(error.message) from None


def _tested(
    run: AbstractCheckRun,
    location: WorkLocation,
    seen: trees.Survey,
    commands: Mapping[str, Check],
    files: Sequence[str],
) -> list[CriterionResult]:
    """Run commands and look for files where a result is tested: of a worktree, in the merge that was `seen`. Raises
    NotNow and RunLost."""
    if location.row is None:
        return _results(run, location.directory, None, commands, files)
    name = check_runs.name_of(run).replace(" ", "-")
    trees.clear_scratch(name)
    try:
        tree = worktrees.own(location.row)
        if seen.why_not:
            why = f"{seen.why_not}; that branch is at {tree.source.head()}"
            criteria = [*(f"check:{each}" for each in commands), *(f"file:{path}" for path in files)]
            return [_result(criterion, False, why=why) for criterion in criteria]
        wanted, merge = worktrees.local_files_of(tree.origin), ("commit-tree", "-p", seen.base, "-p", seen.work)
        commit = tree.source.git().line(*merge, "-m", f"Merge {tree.branch}", seen.content)
        with trees.scratch(tree.source, commit, f"{name}-{run.epoch}", wanted) as merged:
            below = os.path.relpath(location.directory, tree.path)
            directory = os.path.normpath(os.path.join(merged.path, below))
            return _results(run, directory, merged, commands, files)
    except GitFailed as error:
        raise NotNow(f"git cannot merge the work: {error}") from None


def _results(
    run: AbstractCheckRun, directory: str, tree: trees.Tree | None, commands: Mapping[str, Check], files: Sequence[str]
) -> list[CriterionResult]:
    found = [run_check(name, check, directory, tree, partial(_renew, run)) for name, check in commands.items()]
    return found + [_file(directory, path) for path in files]


def run_check(
    name: str, check: Check, directory: str, tree: trees.Tree | None, alive: Callable[[], None]
) -> CriterionResult:
    """Run one command, in the sandbox: in a directory that it reads, or in one of a work tree where it may write.
    `alive` is called every few seconds, and ends it by raising.

    Raises NotNow if it cannot be started, and what `alive` raises.
    """
    seconds = check.seconds or checks.SECONDS
    began = time.monotonic()
    writes, reading, links = ((), (), ()) if tree is None else ((tree.path,), tree.borrowed, tree.links)
    try:
        line = sandbox.wrap(
            _bounded(check.run),
            Permissions(Preset.WORKER, directory, writes),
            network=check.network,
            cwd=directory,
            reading=reading,
            links=links,
        )
        ended = watch(
            line,
            cwd=NEUTRAL,
            env=environment(HOME="/tmp"),  # noqa: S108
            seconds=seconds,
            largest=KEPT,
            alive=alive,
        )
    except (OSError, RunnerFailed) as error:
        raise NotNow(f"check {name} could not be started: {error}") from None
    why = f"it ran longer than {seconds} seconds, and was ended" if ended.code is None else f"exit code {ended.code}"
    return _result(
        f"check:{name}",
        ended.code == 0,
        why=f"{why}. {tree.lacks}" if tree is not None and tree.lacks else why,
        command=check.run,
        code=ended.code,
        seconds=round(time.monotonic() - began, 3),
        output=ended.output.decode(errors="replace").replace("\0", "\ufffd"),
    )


def _bounded(command: str) -> tuple[str, ...]:
    """Return a shell command with its limit of memory.

    The limit is of RLIMIT_DATA, which counts what a process can write: RLIMIT_AS would refuse Node, Go and Java, which
    reserve far more addresses than they use. Where this process has a lower limit already, that one stays.
    """
    if not (most := checks.most_memory()):
        return ("sh", "-c", command)
    return ("sh", "-c", 'ulimit -d "$0" 2>/dev/null; exec sh -c "$1"', str(most * 1024), command)


def failures(known: Mapping[str, Check], tree: trees.Tree, alive: Callable[[], None]) -> str:
    """Run reviewed checks in a work tree of their own, and describe the first that fails; empty if all pass. What its
    `nexus.toml` says does not count. Raises NotNow, and what `alive` raises."""
    for name, check in known.items():
        result = run_check(name, check, tree.path, tree, alive)
        if not result["passed"]:
            return f"{result['criterion']}: {result['why']}\n{result['output']}"
    return ""


def _file(directory: str, path: str) -> CriterionResult:
    """Look for a file or directory, without following links."""
    about = None
    with suppress(OSError):
        about = foreign_files.status(os.path.normpath(os.path.join(directory, path)))
    if about is None:
        return _result(f"file:{path}", False, why="it does not exist")
    is_file = stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
    return _result(f"file:{path}", is_file, why="it is no file")


def _result(
    criterion: str,
    passed: bool,
    *,
    why: str,
    command: str | None = None,
    code: int | None = None,
    seconds: float | None = None,
    output: str | None = None,
) -> CriterionResult:
    return {
        "criterion": criterion,
        "passed": passed,
        "command": command,
        "code": code,
        "seconds": seconds,
        "output": output,
        "why": None if passed else why,
    }


def _facts(run: AbstractCheckRun, criteria: Criteria, location: WorkLocation) -> tuple[Facts, set[str], trees.Survey]:
    """Return the fact sheet of some work, the paths of the criteria that changed, and what git said. Raises NotNow."""
    row, top, seen = location.row, location.directory, trees.NOTHING
    why: str | None = None
    try:
        tree = trees.in_place(location.directory, run.work.since) if row is None else worktrees.own(row)
        top, seen = tree.path, trees.survey(tree)
    except GitFailed as error:
        if criteria.unchanged or row is not None or isinstance(error, trees.Busy):
            raise NotNow(f"git cannot say what changed: {error}") from None
        why = str(error)
    if criteria.unchanged and seen.more:
        raise NotNow("it changes more files than git lists, so nobody can say what is unchanged")
    if row is not None:
        worktrees.record_commits(row, seen)
    else:
        whose = f"in {top}, where anybody may commit"
        receipts.record_commits(str(run.work.doer), receipts.named_in(seen.naming), whose)
    prefix = os.path.relpath(location.directory, top)
    paths = [os.path.relpath(file["path"], prefix) for file in seen.files]
    untouched, unreserved = compare_reserved(run.work, paths) if why is None else ([], [])
    of_setup = setup_record.untouched(CoreSettings.current().home, Path(location.directory))
    unreserved = [path for path in unreserved if os.path.join(location.directory, path) not in of_setup]
    files: list[CheckedFile] = [
        {"path": file["path"], "added": file["added"], "removed": file["removed"]} for file in seen.files[:MOST_FILES]
    ]
    facts: Facts = {
        "directory": location.directory,
        "branch": row.branch if row else None,
        "base": None if seen.base in trees.EMPTY.values() else seen.base or None,
        "commit": seen.head or None,
        "uncommitted": seen.uncommitted,
        "commits": seen.commits,
        "subjects": seen.subjects,
        "stat": seen.stat,
        "files": files,
        "cut": seen.more or len(seen.files) > MOST_FILES,
        "untouched": untouched[:MOST_FILES],
        "unreserved": unreserved[:MOST_FILES],
        "why": why,
    }
    touched = {str(at) for file in seen.files for at in (PurePath(file["path"]), *PurePath(file["path"]).parents)}
    changed = {path for path in criteria.unchanged if os.path.normpath(os.path.join(prefix, path)) in touched}
    return facts, changed, seen


def _renew(run: AbstractCheckRun) -> None:
    if not check_runs.renew(run):
        raise RunLost
