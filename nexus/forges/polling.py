"""The background work for connected forges: looks for issues that changed, and brings each taken issue and its forge in
line.

A forge is a queue. A webhook only says that it is time to look: what is true is what the forge answers, so calls of a
webhook that are lost, repeated or out of order do no harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from django.db.models import F, Q

from coordination.services import audit
from handoffs.models import HandoffStatus
from nexus.control.worktrees.trees import Tree
from nexus.core.background_work import BackgroundWork, repeated
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import Code, NexusError, not_found
from nexus.forges import push, remotes, services, texts
from nexus.forges.config import ForgeSettings
from nexus.forges.models import Forge, ForgeIssue, ForgeKind
from nexus.forges.protocol import Client, ForgeError, NotThere, Pull, PushInterrupted, Rejected, StepResult

LEASE = timedelta(seconds=15)  # without a sign of life, until an issue is another hub's to look at
RENEW_SECONDS = 3.0
CLIENTS = {
    ForgeKind.GITHUB: ("nexus.forges.github", "GitHubClient"),
    ForgeKind.GITLAB: ("nexus.forges.gitlab", "GitLabClient"),
}


def client(forge: Forge) -> Client:
    """Return a client of a forge. Raises CONFIG_ERROR where its library is not installed."""
    module, name = CLIENTS[ForgeKind(forge.kind)]
    try:
        made: Client = getattr(import_module(module), name)(forge.url, forge.repository, forge.token)
    except ModuleNotFoundError:
        raise services.refuse_kind(forge.kind) from None
    return made


@dataclass(frozen=True)
class ForgeStep:
    """A look at a forge's issues, or at one that was taken."""

    forge: Forge
    issue: ForgeIssue | None = None
    tree: Tree | None = None  # where the issue's agent works
    approved: str | None = None  # the commit of it that a person approved
    heads: tuple[str, ...] = ()  # of the work that waits for a merge on a git remote
    is_fresh: bool = False  # some of it was not compared yet


class Rounds(BackgroundWork[ForgeStep, StepResult]):
    """Background work: a forge is a queue, a step an item."""

    name = "forges"
    threads = 4
    watches_log = True

    def queues(self) -> Sequence[str]:
        waiting = Q(refused_at__isnull=False) | Q(next_attempt_at__gt=now())
        return list(Forge.objects.exclude(waiting).values_list("pk", flat=True))

    def claim(self, queue: str) -> ForgeStep | None:
        moment = now()
        forge = Forge.objects.filter(pk=queue, refused_at=None).select_related("workspace").first()
        if forge is None or (forge.next_attempt_at is not None and forge.next_attempt_at > moment):
            return None
        if forge.poll_at <= moment:
            again = moment + timedelta(seconds=ForgeSettings.current().forge_poll_seconds)
            if Forge.objects.filter(pk=queue, poll_at=forge.poll_at).update(poll_at=again):
                return _look_of(forge)
        issue = forge.issues.due(moment).select_related("handoff").order_by("due_at", "pk").first()
        if issue is None:
            return None
        if not _lease(issue):
            return None  # another hub looks at it
        tree = push.work_of(issue.handoff)
        return ForgeStep(forge, issue, tree, push.approved(issue, tree))

    def act(self, item: ForgeStep) -> StepResult:
        if item.issue is None:
            return self._found(item)
        with repeated(partial(_lease, item.issue), RENEW_SECONDS, self.name):
            return self._found(item)

    def _found(self, item: ForgeStep) -> StepResult:
        found = StepResult(etag=item.forge.etag)
        try:
            if item.forge.kind == ForgeKind.GIT:
                _push_or_look(item, found)
                return found
            calls = client(item.forge)
            if item.issue is not None:
                _bring_in_line(calls, item, item.issue, found)
            elif (changed := calls.issues(item.forge.since, item.forge.etag)) is not None:
                found.issues, found.etag = changed
        except ForgeError as error:
            found.error = error
        except NexusError as error:
            found.error = ForgeError(error.message)
        return found

    def given_up(self, item: ForgeStep, why: str) -> StepResult:
        return StepResult(etag=item.forge.etag, error=ForgeError(why))

    def settle(self, item: ForgeStep, outcome: StepResult) -> bool:
        if item.issue is not None:
            services.settle_issue(item.forge, item.issue, outcome)
        elif outcome.error is None and item.forge.kind == ForgeKind.GIT:
            services.settle_watch(item.forge, outcome.watched, item.heads)
        elif outcome.error is None:
            try:
                services.settle_look(item.forge, outcome.issues or (), outcome.etag)
            except NexusError as refusal:
                outcome.error = ForgeError(refusal.message)
        services.settle_call(item.forge, outcome.error)
        return outcome.error is None


def take_now(forge_id: str, number: int, operator: str) -> ForgeIssue:
    """Ask a forge for one issue, and take it. Raises NOT_FOUND, CONFIG_ERROR where the forge fails, and the errors of a
    new handoff."""
    forge = services.find_forge(forge_id)
    if forge.kind == ForgeKind.GIT:
        raise not_found("open issue", f"#{number}")
    try:
        issue = client(forge).issue(number)
    except NotThere:
        raise not_found("open issue", f"#{number}") from None
    except ForgeError as error:
        services.settle_call(forge, error)
        raise NexusError(Code.CONFIG_ERROR, f"{forge.repository}: {error}.") from None
    if not issue.is_open:
        raise not_found("open issue", f"#{number}")
    with write():
        audit.record(operator, "forge.asked", now(), forge_id=forge_id, repository=forge.repository, number=number)
        return services.take(forge, issue)


def _lease(issue: ForgeIssue) -> bool:
    """Take an issue, or keep it, for another lease; return False if another hub has taken it since it was read."""
    until = now() + LEASE
    with write():
        if not ForgeIssue.objects.filter(pk=issue.pk, leased_until=issue.leased_until).update(leased_until=until):
            return False
    issue.leased_until = until
    return True


def _look_of(forge: Forge) -> ForgeStep:
    if forge.kind != ForgeKind.GIT:
        return ForgeStep(forge)
    waiting = forge.issues.filter(ended="").exclude(head="")
    rows = waiting.order_by(F("pull_updated_at").asc(nulls_first=True)).values_list("head", "pull_updated_at")
    found = list(rows[: remotes.MAX_WORK])
    return ForgeStep(forge, heads=tuple(head for head, _ in found), is_fresh=any(seen is None for _, seen in found))


def _push_or_look(step: ForgeStep, found: StepResult) -> None:
    """Push approved work to a git remote, or look at its watched branch. Raises ForgeError."""
    forge, issue = step.forge, step.issue
    if issue is None:
        root = forge.workspace.root_realpath
        found.watched = remotes.compare(root, forge.url, forge.base, forge.etag, step.heads, is_fresh=step.is_fresh)
    elif issue.published_at is not None and not issue.ended:
        try:
            found.pushed, commit = _push(step, issue, forge.url, found.columns)
        except push.PushFailed as error:  # until a person publishes it again
            found.columns |= {"last_error": str(error)[:255], "published_at": None}
            return
        found.columns |= {"head": commit, "pull_updated_at": None, "published_at": None, "last_error": None}


def _push(step: ForgeStep, issue: ForgeIssue, remote: str, columns: dict[str, Any]) -> tuple[str, str]:
    """Push the work on an issue; count in `columns` how often that failed in a row for a reason that may pass. A person
    is told of the second failure."""
    failures = (issue.push_failures or 0) + 1
    columns |= {"push_failures": None}
    try:
        return push.push(step.forge, issue, step.tree, remote, approved=step.approved)
    except PushInterrupted as error:
        told = f"{str(error)[:200]}; it is tried again" if failures > 1 else None
        columns |= {"push_failures": failures, "last_error": told}
        raise


def _bring_in_line(calls: Client, step: ForgeStep, issue: ForgeIssue, found: StepResult) -> None:
    """Publish what was approved, read what became of it, and show the progress. Raises ForgeError; what was done by
    then is in `found`."""
    approved = issue.handoff.status == HandoffStatus.COMPLETED and issue.pull is None
    if not issue.ended and (issue.published_at is not None or approved):
        _publish(calls, step, issue, found)
    if not issue.ended and (number := found.columns.get("pull", issue.pull)) is not None:
        _read_pull(calls, number, issue, found)
    _show_progress(calls, issue, found.columns)


def _publish(calls: Client, step: ForgeStep, issue: ForgeIssue, found: StepResult) -> None:
    columns = found.columns
    try:
        if issue.pull is None and _is_closed(calls, issue):
            # It was closed by its pull request, perhaps, which was opened just before a hub died.
            pull = _own_pull(calls, step, issue)
            found.is_closed = pull is None
            columns |= {"published_at": None} if pull is None else _opened(pull, pull.head)
            return
        branch, commit = _push(step, issue, calls.remote(), columns)
        pull = calls.find_pull(branch)  # a crash after it was opened opens no second one
        if pull is None or (pull.state != "open" and not _is_own(pull, issue)):
            title = f"{texts.single_name(issue.title)} (#{issue.number})"
            text = texts.pull_text(issue.handoff_id, issue.number, issue.handoff.claimed_by)
            pull = calls.open_pull(branch, step.forge.base, title, text)
    except (push.PushFailed, Rejected) as error:  # until a person publishes it again
        columns |= {"last_error": str(error)[:255], "published_at": None}
        return
    columns |= _opened(pull, commit)


def _opened(pull: Pull, commit: str) -> dict[str, Any]:
    about = {"pull": pull.number, "pull_url": pull.url[:2000], "head": commit, "checks": ""}
    return {**about, "published_at": None, "last_error": None}


def _is_own(pull: Pull, issue: ForgeIssue) -> bool:
    """Return whether a hub opened a pull request for an issue."""
    return texts.marker(issue.handoff_id) in pull.text


def _is_closed(calls: Client, issue: ForgeIssue) -> bool:
    try:
        return not calls.issue(issue.number).is_open
    except NotThere:  # work on an issue that was deleted can be published
        return False


def _own_pull(calls: Client, step: ForgeStep, issue: ForgeIssue) -> Pull | None:
    """Return the pull request that a hub opened for an issue, whatever its state."""
    branch = issue.branch or (step.tree.branch if step.tree else None)
    pull = calls.find_pull(branch) if branch else None
    return pull if pull is not None and _is_own(pull, issue) else None


def _read_pull(calls: Client, number: int, issue: ForgeIssue, found: StepResult) -> None:
    try:
        pull = calls.pull(number)
    except Rejected as error:  # it was deleted: until a person publishes the work again
        found.columns |= {"last_error": str(error)[:255], "pull_state": ""}
        return
    if issue.pull_updated_at is not None and pull.updated_at < issue.pull_updated_at:
        return  # an older answer, of a cache
    found.columns |= {"pull_state": pull.state, "pull_updated_at": pull.updated_at}
    if pull.state != "open":
        return
    known = set(issue.known)
    try:
        checks = calls.checks(pull, known)
        said = calls.comments(number, issue.comments_since, known)
    except Rejected:  # such as a commit that it does not have yet; the next look asks again
        return
    found.columns["checks"] = "" if checks.state == "none" else checks.state
    found.jobs = list(checks.failed)
    fresh = [each for each in said if each.key not in known and texts.MARK not in each.text]
    found.comments = [each for each in fresh if not each.left_out]
    found.left_out = {each.key: f"a comment of {each.author}, {each.left_out}" for each in fresh if each.left_out}
    if checks.left_out and (key := f"left out:{checks.left_out}") not in known:
        found.left_out[key] = checks.left_out
    found.columns["comments_since"] = pull.updated_at


def _show_progress(calls: Client, issue: ForgeIssue, columns: dict[str, Any]) -> None:
    """Write the comment that shows the progress, once; afterwards edit it. One that was deleted is made anew once."""
    handoff = issue.handoff
    url, checks = columns.get("pull_url", issue.pull_url), columns.get("checks", issue.checks)
    state = columns.get("pull_state", issue.pull_state)
    status = state if state in ("merged", "closed") else handoff.status
    text = texts.progress_text(handoff.pk, status, handoff.claimed_by, url, checks)
    if text == issue.comment:
        return
    comment = issue.comment_id
    try:
        if comment is None and not issue.comment_lost:
            comment = calls.find_comment(issue.number, texts.marker(handoff.pk))  # a crash after it was written
        if comment is not None:
            calls.edit_comment(issue.number, comment, text)
            columns |= {"comment_id": comment, "comment": text}
        elif not issue.comment_lost:
            columns |= {"comment_id": calls.add_comment(issue.number, text), "comment": text}
    except Rejected as error:
        again = None
        if comment is not None and not issue.comment_lost and isinstance(error, NotThere):
            with suppress(Rejected):  # the issue itself is gone
                again = calls.add_comment(issue.number, text)
        columns |= {"comment_id": again, "comment": text, "comment_lost": True}


ROUNDS = Rounds()
