"""Acceptance criteria that Nexus tests itself, and the `nexus.toml` of a project, as an operator reviewed it.

A criterion `check:NAME` names a command, `file:PATH` a file that must exist, `unchanged:PATH` what must not change. Any
other text is for the verifier. An agent only names a command: what it runs stands in the project's `nexus.toml`. So do
the local files that agents' worktrees get. Both count once an operator has reviewed them, and until one changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from coordination.paths import workspace_id_of
from coordination.services import workspaces
from handoffs import check_runs
from handoffs.config import HandoffSettings
from handoffs.lifecycle import CREATOR, parse_verifier
from handoffs.models import ReviewedChecks
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.foreign_files import beginning, is_dot_git
from nexus.core.operations.errors import Code, NexusError, invalid

FILE = "nexus.toml"
LARGEST = 65_536  # bytes of that file
MOST = 50  # checks in it, and local files
LONGEST_COMMAND = 4_000  # characters
LONGEST_PATH = 500  # characters
SECONDS, MOST_SECONDS = 900, 86_400  # that a check may run, where it does not say; that it may say
CRITERION = re.compile(r"(check|file|unchanged):(\S.*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
KEYS = {"run", "seconds", "network"}
WAYS = ("copy", "symlink")  # in which a worktree gets local files
HOW_FILES = f'As in `[worktrees]` of {FILE}: `copy = [".env"]`, `symlink = ["node_modules"]`.'
HOW = f'As in `[checks]` of {FILE}: `tests = "make test"`, or `tests = {{ run = "make test", seconds = 300 }}`.'


class Criteria(NamedTuple):
    """Acceptance criteria by kind: what Nexus tests, and the sentences for the verifier."""

    commands: list[str]
    files: list[str]
    unchanged: list[str]
    sentences: list[str]


def parse(criteria: Sequence[str] | None) -> Criteria:
    """Sort criteria by kind; each is listed once."""
    kinds: dict[str, dict[str, None]] = {"check": {}, "file": {}, "unchanged": {}, "": {}}
    for text in criteria or ():
        found = CRITERION.fullmatch(text)
        kind, what = (found[1], found[2].strip()) if found else ("", text)
        kinds[kind][what] = None
    return Criteria(*map(list, kinds.values()))


def tests(criteria: Sequence[str] | None) -> bool:
    """Return whether Nexus tests results by these criteria."""
    found = parse(criteria)
    return bool(found.commands or found.files or found.unchanged)


def verifier_of(given: Any, criteria: Criteria) -> str | None:
    """Return who verifies results, as it is stored: the creator where there are sentences for a verifier and none is
    `given`. Raises VALIDATION_ERROR."""
    return parse_verifier(given) or (CREATOR if criteria.sentences else None)


def verify_names(criteria: Criteria, workspace_id: str) -> None:
    """Check that each command is reviewed, and that each path lies in the project. Raises VALIDATION_ERROR."""
    for path in (*criteria.files, *criteria.unchanged):
        if CONTROL.search(path) or not _lies_within(path):
            raise invalid(f"{path!r} must be a path within the project.", field="acceptance_criteria")
    if not criteria.commands:
        return
    known = reviewed(workspace_id)
    for name in criteria.commands:
        if name not in known:
            there = f"Reviewed are: {', '.join(sorted(known)[:20])}." if known else "None is reviewed here yet."
            raise invalid(
                f"This project has no reviewed check {name[:64]!r}. {there} An operator reviews those of {FILE} with "
                "`nexus checks approve`.",
                field="acceptance_criteria",
            )


def _lies_within(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and not any(map(is_dot_git, parts))


class Check(NamedTuple):
    """A command of `nexus.toml`; `seconds` is its time limit."""

    run: str
    seconds: int | None = None
    network: bool = False


class LocalFiles(NamedTuple):
    """Paths below `root` that git does not have and agents need: what worktrees get, and how. `why_none`: why they get
    none."""

    copy: Sequence[str] = ()
    symlink: Sequence[str] = ()
    root: str = ""
    why_none: str = ""

    @property
    def paths(self) -> list[str]:
        return [*self.copy, *self.symlink]


class ProjectChecks(NamedTuple):
    """The checks of a project's `nexus.toml`, by name, its local files, and the digest by which an operator approves
    them."""

    checks: Mapping[str, Check]
    files: LocalFiles
    digest: str


def read_checks(root: str) -> ProjectChecks:
    """Read a project's `nexus.toml`. Raises NOT_FOUND where it has no such file (a link or a pipe is none), and
    VALIDATION_ERROR."""
    content = beginning(os.path.join(root, FILE), LARGEST + 1)
    if content is None:
        raise NexusError(Code.NOT_FOUND, f"{root} has no readable file {FILE}; a link is not followed.", {"file": FILE})
    if len(content) > LARGEST:
        raise invalid(f"{FILE} is larger than {LARGEST} bytes.", field=FILE)
    try:
        tables = tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # of TOML and of UTF-8
        raise invalid(f"{FILE} is not TOML: {str(error)[:200]}.", field=FILE) from None
    table = tables.get("checks", {})
    if not isinstance(table, dict) or len(table) > MOST:
        raise invalid(f"`checks` in {FILE} must be a table of at most {MOST} checks. {HOW}", field=FILE)
    checks = {name: _check(name, value) for name, value in table.items()}
    files = _local_files(tables.get("worktrees", {}), root)
    text = json.dumps({name: check._asdict() for name, check in checks.items()}, sort_keys=True)
    text += json.dumps([files.copy, files.symlink]) if files.paths else ""  # an approval of a file without them holds
    return ProjectChecks(checks, files, hashlib.sha256(text.encode()).hexdigest())


def _local_files(table: Any, root: str) -> LocalFiles:
    if not isinstance(table, dict) or not set(table) <= set(WAYS):
        raise invalid(f"`worktrees` in {FILE} is malformed. {HOW_FILES}", field=FILE)
    lists = [table.get(way, []) for way in WAYS]
    if not all(isinstance(each, list) for each in lists) or sum(map(len, lists)) > MOST:
        raise invalid(f"`worktrees` in {FILE} must have lists of at most {MOST} paths. {HOW_FILES}", field=FILE)
    copy, symlink = ([_local_file(path) for path in each] for each in lists)
    if len({*copy, *symlink}) < len(copy) + len(symlink):
        raise invalid(f"`worktrees` in {FILE} names a path twice.", field=FILE)
    return LocalFiles(copy, symlink, root)


def _local_file(path: Any) -> str:
    if not isinstance(path, str) or len(path) > LONGEST_PATH or not path.isprintable() or not _lies_within(path):
        raise invalid(
            f"{str(path)[:64]!r} in `worktrees` of {FILE} must be a printable path within the project. {HOW_FILES}",
            field=FILE,
        )
    return str(PurePosixPath(path))


def _check(name: str, value: Any) -> Check:
    given = {"run": value} if isinstance(value, str) else value
    if not NAME.fullmatch(name) or not isinstance(given, dict) or not set(given) <= KEYS:
        raise invalid(f"The check {name[:64]!r} in {FILE} is malformed. {HOW}", field=FILE)
    run, seconds, network = given.get("run"), given.get("seconds"), given.get("network", False)
    if not isinstance(run, str) or not run.strip() or len(run) > LONGEST_COMMAND or "\0" in run:
        raise invalid(f"`run` of the check {name!r} must be a command of at most {LONGEST_COMMAND} characters. {HOW}",
                      field=FILE)  # fmt: skip
    if seconds is not None and (type(seconds) is not int or not 1 <= seconds <= MOST_SECONDS):
        raise invalid(f"`seconds` of the check {name!r} must be 1 to {MOST_SECONDS}.", field=FILE)
    if not isinstance(network, bool):
        raise invalid(f"`network` of the check {name!r} must be true or false.", field=FILE)
    return Check(run, seconds, network)


def most_memory() -> int:
    """Return how many MiB one process of a check may take; 0: no limit."""
    return HandoffSettings.current().handoff_check_memory_mib


def reviewed(workspace_id: str) -> Mapping[str, Check]:
    """Return the checks of a workspace that an operator approved, by name."""
    review = review_of(workspace_id)
    return {} if review is None else checks_in(review)


def checks_in(review: ReviewedChecks) -> Mapping[str, Check]:
    """Return the checks of an approval, by name."""
    return {name: Check(**check) for name, check in review.checks.items()}


def review_of(workspace_id: str) -> ReviewedChecks | None:
    """Return the latest approval of a workspace's checks."""
    return ReviewedChecks.objects.filter(pk=workspace_id).first()


class Approved(NamedTuple):
    """The checks of a project that may run; `why_none` says why there are none, and who allowed that."""

    checks: Mapping[str, Check]
    why_none: str = ""


def approved(workspace_id: str, root: str) -> Approved:
    """Return the checks of a project, if its file has them as an operator approved them. A project that never had
    approved checks and has no file has none.

    Raises the errors of `read_checks`, and VALIDATION_ERROR for checks that are not approved.
    """
    review = review_of(workspace_id)
    try:
        found = read_checks(root)
    except NexusError as error:
        if review is None and error.code == Code.NOT_FOUND:
            return Approved({}, error.message)
        raise
    if review is None and not found.checks:
        return Approved({}, f"{FILE} of {root} has no checks.")
    review = _approval(review, found, root)
    return Approved(found.checks, "" if found.checks else f"{review.reviewed_by} approved a {FILE} without checks.")


def approved_files(root: str) -> LocalFiles:
    """Return the local files that worktrees of a project get, as an operator approved them."""
    root = os.path.realpath(root)
    try:
        found = read_checks(root)
        if found.files.paths:
            _approval(review_of(workspace_id_of(root)), found, root)
    except NexusError as error:
        return LocalFiles(why_none="" if error.code == Code.NOT_FOUND else error.message)
    return found.files


def _approval(review: ReviewedChecks | None, found: ProjectChecks, root: str) -> ReviewedChecks:
    """Return the approval of a file as it is. Raises VALIDATION_ERROR if there is none."""
    if review is not None and review.digest == found.digest:
        return review
    fault = "not approved" if review is None else f"others than {review.reviewed_by} approved"
    names = ", ".join([*found.checks, *found.files.paths])[:200] or "none is left"
    raise invalid(
        f"the checks and local files in {FILE} are {fault} ({names}). Look at them on the page Checks, or approve them "
        f"by `nexus checks approve --project {shlex.quote(root)}`",
        field=FILE,
    )


def approve(*, project_root: str, digest: str, operator: str) -> ProjectChecks:
    """Approve the checks of a project as they stand in its file. What waits for them is due at once.

    Raises WORKSPACE_UNRESOLVED, the errors of `read_checks`, and VALIDATION_ERROR where the file has another digest
    now.
    """
    project, moment = workspaces.locate(project_root), now()
    found = read_checks(project.root)
    if found.digest != digest:
        raise invalid(f"The contents of {FILE} are others now; look at them again: `nexus checks`.", field="digest")
    with write():
        workspaces.ensure(project, moment)
        ReviewedChecks.objects.update_or_create(
            workspace_id=project.workspace_id,
            defaults={
                "digest": digest,
                "checks": {name: check._asdict() for name, check in found.checks.items()},
                "reviewed_by": operator,
                "reviewed_at": moment,
            },
        )
        check_runs.make_due(project.workspace_id, moment)
    return found
