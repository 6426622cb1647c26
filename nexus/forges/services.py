"""Services of connected forges: connect, disconnect, take an issue, and what an answer of the forge changes.

Nothing here calls a forge; `rounds` does, between two transactions.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.models import ID_LENGTH
from coordination.routing import Strategy, parse_target
from coordination.services import audit, tags, workspaces
from handoffs import checks, lifecycle, notices, operator_actions, selectors, verdicts
from handoffs import services as handoffs
from handoffs.leases import expire
from handoffs.models import HELD, Handoff, HandoffStatus, single_line
from handoffs.transitions import By
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.installation import needs_extra
from nexus.core.operations.caller import HUB_AGENT, OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.forges import remotes, texts
from nexus.forges.config import ForgeSettings
from nexus.forges.models import PAUSES, STREAM, Forge, ForgeIssue, ForgeKind, pause
from nexus.forges.protocol import Busy, ForgeError, IssueData, StepResult, TokenRefused, Watched
from nexus.forges.push import is_of, work_of
from nexus.hooks.sender import check_url

URLS = {ForgeKind.GITHUB: "https://api.github.com", ForgeKind.GITLAB: "https://gitlab.com"}
MOST = 100  # connected forges
MAX_TOKEN = 1_000
OVERLAP = timedelta(seconds=300)  # a handoff's change may be committed that much later than it is dated
MOST_KNOWN = 1_000  # jobs and comments of an issue that are remembered
BEGINNING = datetime(1970, 1, 2, tzinfo=UTC)  # what has the label already is taken, too
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,200}")


def connect(
    *,
    kind: str,
    repository: str,
    project_root: str,
    token: str | None,
    url: str | None,
    label: str | None,
    assignee: str | None,
    target: Any,
    base: str | None,
    operator: str,
) -> Forge:
    """Take issues of a repository from now on, or push work to a git remote and watch it; for one that is connected
    already, replace its token.

    Raises VALIDATION_ERROR, WORKSPACE_UNRESOLVED, NOT_FOUND for a tag or agent of the target.
    """
    if kind == ForgeKind.GIT:
        repository = address = _remote(
            repository, base, token=token, url=url, label=label, assignee=assignee, target=target
        )
    else:
        address = _api(ForgeKind(kind), repository, token, url)
    parsed = parse_target(target if target is not None else {"strategy": Strategy.BROADCAST.value})
    tags.check_target(parsed)
    project, moment = workspaces.locate(project_root), now()
    with write():
        workspaces.ensure(project, moment)
        known = Forge.objects.filter(url=address, repository=repository).first()
        if known is not None and known.workspace_id != project.workspace_id:
            raise invalid("This repository is connected to another project; disconnect it first.", field="repository")
        if known is None and Forge.objects.count() >= MOST:
            raise invalid(f"There are {MOST} connected repositories already; disconnect one first.")
        if (
            kind == ForgeKind.GIT
            and Forge.objects.filter(kind=kind, workspace_id=project.workspace_id).exclude(url=address).exists()
        ):
            raise invalid("This project has a git remote already; disconnect that first.", field="repository")
        chosen = {"token": token or "", "label": label, "assignee": assignee, "target": parsed, "base": base}
        fresh = {"poll_at": moment, "failures": 0, "next_attempt_at": None, "last_error": None, "refused_at": None}
        if known is not None:
            is_same = kind == ForgeKind.GIT or (label, assignee) == (known.label, known.assignee)
            since = known.since if is_same else BEGINNING
            Forge.objects.filter(pk=known.pk).update(**chosen, **fresh, since=since, etag="")
            audit.record(operator, "forge.token_replaced", moment, forge_id=known.pk, repository=repository)
            known.refresh_from_db()
            return known
        row = Forge.objects.create(
            forge_id=new_id("frg"),
            kind=kind,
            url=address,
            repository=repository,
            workspace_id=project.workspace_id,
            secret=secrets.token_urlsafe(32),
            operator=operator,
            created_at=moment,
            since=moment if kind == ForgeKind.GIT else BEGINNING,
            **chosen,
            **fresh,
        )
        host = urlsplit(address).hostname or address
        audit.record(operator, "forge.connected", moment, forge_id=row.pk, repository=repository, host=host)
    return row


def _api(kind: ForgeKind, repository: str, token: str | None, url: str | None) -> str:
    """Return the address of a forge's API. Raises VALIDATION_ERROR, also for what is no repository or token there."""
    address = (url or URLS[kind]).rstrip("/")
    check_url(address, allow_private=True)
    parts = repository.split("/")
    if len(parts) < 2 or (kind == ForgeKind.GITHUB and len(parts) != 2) or not all(map(_is_name, parts)):
        raise invalid("repository must be OWNER/REPO.", field="repository")
    if token is None:
        raise invalid("token is missing.", field="token")
    if not (token.isascii() and token.isprintable() and " " not in token and 0 < len(token) <= MAX_TOKEN):
        raise invalid("token must be one word of plain characters.", field="token")
    return address


def _remote(repository: str, base: str | None, **others: Any) -> str:
    """Return the address of a git remote. Raises VALIDATION_ERROR."""
    for field, value in others.items():
        if value is not None:
            raise invalid(f"{field} is not for a git remote.", field=field)
    check_branch(base, "base")
    try:
        address = remotes.address_of(repository)
    except ValueError as error:
        raise invalid(f"repository {error}.", field="repository") from None
    if len(address) > ID_LENGTH:
        raise invalid("repository is too long.", field="repository")
    return address


def check_branch(branch: str | None, field: str) -> None:
    """Raise VALIDATION_ERROR for what cannot be the name of a branch."""
    if branch is not None and (not _BRANCH.fullmatch(branch) or ".." in branch or branch.endswith((".lock", "/", "."))):
        raise invalid(f"{field} must be the name of a branch.", field=field)


def _is_name(part: str) -> bool:
    return part not in (".", "..") and part.isascii() and all(letter.isalnum() or letter in "-_." for letter in part)


def disconnect(*, forge_id: str, operator: str) -> Forge:
    """Forget a repository and its token. Its handoffs stay. Raises NOT_FOUND."""
    with write():
        row = find_forge(forge_id)
        Forge.objects.filter(pk=forge_id).delete()
        audit.record(operator, "forge.disconnected", now(), forge_id=forge_id, repository=row.repository)
    return row


def find_forge(forge_id: str) -> Forge:
    """Return a connected repository. Raises NOT_FOUND."""
    row = Forge.objects.filter(pk=forge_id).select_related("workspace").first()
    if row is None:
        raise not_found("forge", forge_id[:200])
    return row


def is_wanted(forge: Forge, issue: IssueData) -> bool:
    """Return whether an issue is taken by its label or its assignee."""
    return issue.is_open and (forge.label in issue.labels or forge.assignee in issue.assignees)


def take(forge: Forge, issue: IssueData) -> ForgeIssue:
    """Make a handoff of an issue, once. Its result is tested by the project's reviewed checks, and an operator verifies
    it. Raises the errors of a new handoff."""
    known = ForgeIssue.objects.filter(forge=forge, number=issue.number).first()
    if known is not None:
        return known
    moment = now()
    # In one transaction: after a crash between the two, an issue that was edited would be another handoff's content.
    with write():
        created = handoffs.create(
            project_root=forge.workspace.root_realpath,
            from_agent_id=OPERATOR_AGENT,
            target=forge.target,
            visibility="public",
            title=single_line(f"#{issue.number} {issue.title}"),
            payload=texts.work_text(forge.repository, issue),
            verifier=lifecycle.OPERATOR,
            acceptance_criteria=[f"check:{name}" for name in sorted(checks.reviewed(forge.workspace_id))],
            client_id=f"{forge.pk}:{issue.number}",  # a second process makes no second one
        )
        row, is_new = ForgeIssue.objects.get_or_create(
            forge=forge,
            number=issue.number,
            defaults={
                "handoff": created.handoff,
                "title": issue.title[:500],
                "url": issue.url[:2000],
                "updated_at": issue.updated_at,
            },
        )
        if is_new:
            emit_event(forge, row, "issue_taken", moment)
    return row


def look_soon(forge: Forge) -> None:
    """Have a forge and the issues that were taken from it looked at as soon as possible."""
    moment = now()
    with write():
        Forge.objects.filter(pk=forge.pk, poll_at__gt=moment).update(poll_at=moment)
        forge.issues.filter(ended="").exclude(due_at=None).update(due_at=moment)


def publish(*, handoff_id: str, branch: str | None, operator: str) -> ForgeIssue:
    """Have the hub push the work on an issue and open its pull request, or push again; work on no issue goes to the git
    remote of its project. Raises NOT_FOUND, INVALID_TRANSITION, VALIDATION_ERROR."""
    check_branch(branch, "branch")
    moment = now()
    with write():
        handoff = Handoff.objects.filter(pk=handoff_id).first()
        row = ForgeIssue.objects.filter(handoff_id=handoff_id).select_related("handoff").first()
        remote = Forge.objects.filter(kind=ForgeKind.GIT, workspace_id=handoff and handoff.workspace_id).first()
        if row is None and handoff is not None and remote is not None:
            row = _work_on(remote, handoff)  # a refusal takes it back
        if row is None:
            raise not_found("issue of a forge for handoff", handoff_id[:200])
        if row.handoff.status not in (HandoffStatus.SUBMITTED, HandoffStatus.COMPLETED) or row.ended:
            what = f"its issue is {row.ended}" if row.ended else f"it is {row.handoff.status}"
            raise NexusError(
                Code.INVALID_TRANSITION, f"This handoff cannot be published: {what}.", {"status": row.handoff.status}
            )
        chosen = {} if branch is None else {"branch": branch}
        ForgeIssue.objects.filter(pk=row.pk).update(
            published_at=moment, due_at=moment, last_error=None, push_failures=None, **chosen
        )
        audit.record(operator, "forge.published", moment, handoff_id=handoff_id, number=row.number)
    row.refresh_from_db()
    return row


def _work_on(remote: Forge, handoff: Handoff) -> ForgeIssue:
    """Return the row of a handoff whose work goes to a git remote."""
    about = {"number": handoff.created_event_id, "title": handoff.title, "updated_at": handoff.updated_at}
    return ForgeIssue.objects.get_or_create(handoff=handoff, defaults={"forge": remote, **about})[0]


def settle_watch(forge: Forge, watched: Watched | None, heads: Sequence[str]) -> None:
    """Store what a look at a git remote found: log that its branch moved, end the work that is in it, and have the work
    pushed that was approved meanwhile."""
    moment = now()
    is_latest = Forge.objects.filter(pk=forge.pk, etag=forge.etag, base=forge.base)  # else another hub was faster
    approved = _approved_for(forge)  # first: it looks into directories
    with write():
        if watched is not None and is_latest.update(etag=watched.commit):
            if watched.commit != forge.etag and forge.etag:
                emit(
                    workspace_id=forge.workspace_id,
                    stream=STREAM,
                    type="forge.branch_moved",
                    actor=None,
                    payload={
                        "forge_id": forge.pk,
                        "repository": forge.repository,
                        "branch": forge.base or "HEAD",
                        "former": forge.etag,
                        "commit": watched.commit,
                    },
                    moment=moment,
                )
            rows = forge.issues.filter(head__in=heads, ended="")
            rows.update(pull_updated_at=moment)
            for row in rows.filter(head__in=watched.merged).select_related("handoff"):
                end(forge, row, "merged")
        for handoff in Handoff.objects.filter(pk__in=approved, forge_issue=None):  # another hub may have been faster
            row = _work_on(forge, handoff)
            ForgeIssue.objects.filter(pk=row.pk).update(published_at=moment, due_at=moment)
        Forge.objects.filter(pk=forge.pk).update(since=moment)


def _approved_for(forge: Forge) -> list[str]:
    """Return the ids of the handoffs that were approved since the last look, with work in a worktree of the project."""
    rows = Handoff.objects.filter(
        workspace_id=forge.workspace_id,
        status=HandoffStatus.COMPLETED,
        verifier=lifecycle.OPERATOR,
        updated_at__gte=forge.since - OVERLAP,
        forge_issue=None,
    ).exclude(claimed_by=None)
    root = forge.workspace.root_realpath
    trees = [(handoff, work_of(handoff)) for handoff in rows]
    return [handoff.pk for handoff, tree in trees if tree is not None and is_of(root, tree)]


def settle_look(forge: Forge, issues: Sequence[IssueData], etag: str) -> None:
    """Take the issues that are wanted, and end the work on those that were closed. Raises the errors of a new
    handoff."""
    since = forge.since
    known = forge.issues.filter(number__in=[issue.number for issue in issues]).select_related("handoff")
    rows = {row.number: row for row in known}
    for issue in issues:
        row = rows.get(issue.number)
        if row is not None and issue.updated_at >= row.updated_at:  # else an older answer, of a cache
            ForgeIssue.objects.filter(pk=row.pk).update(updated_at=issue.updated_at)
            if not issue.is_open and row.pull_state != "open":
                _end_closed(forge, row)
        elif row is None and is_wanted(forge, issue):
            take(forge, issue)
        since = max(since, issue.updated_at)
    asked = {"token": forge.token, "label": forge.label, "assignee": forge.assignee}
    Forge.objects.filter(pk=forge.pk, **asked).update(since=since, etag=etag)  # not if it was connected anew meanwhile


def _end_closed(forge: Forge, row: ForgeIssue) -> None:
    """End the work on an issue that was closed. If a hub may have opened a pull request without recording that, it is
    looked for first: its merge may have closed the issue."""
    is_published = row.published_at is not None or row.handoff.status == HandoffStatus.COMPLETED
    if row.pull is None and is_published and forge.kind != ForgeKind.GIT:
        ForgeIssue.objects.filter(pk=row.pk, ended="").update(due_at=now())
    else:
        end(forge, row, "closed")


def settle_issue(forge: Forge, row: ForgeIssue, found: StepResult) -> None:
    """Store what a look at a taken issue found, pass on to its agent what that does not know, and end the work that was
    merged or closed: all in one transaction."""
    moment = now()
    columns, jobs, comments = found.columns, found.jobs, found.comments
    state, url = columns.get("pull_state", row.pull_state), columns.get("pull_url", row.pull_url)
    changes = dict(columns)
    if found.error is None:
        changes["seen_at"] = row.handoff.updated_at
        wait = timedelta(seconds=ForgeSettings.current().forge_poll_seconds)
        changes["due_at"] = moment + wait if state == "open" else None
    else:
        changes["due_at"] = moment + pause(columns.get("push_failures") or 1)
    keys = [*(job.key for job in jobs), *(comment.key for comment in comments), *found.left_out]
    changes["leased_until"] = None
    changes["known"] = [*row.known, *keys][-MOST_KNOWN:]
    with write():
        asked = ForgeIssue.objects.filter(pk=row.pk).values_list("published_at", "due_at").first()
        if asked is not None and asked != (row.published_at, row.due_at):  # something came while this was done
            changes |= {"published_at": asked[0], "due_at": moment}
        if not ForgeIssue.objects.filter(pk=row.pk, leased_until=row.leased_until).update(**changes):
            return  # it was disconnected, or is another hub's
        if found.pushed:
            emit_event(forge, row, "branch_pushed", moment, branch=found.pushed, commit=columns["head"])
        if row.pull is None and "pull" in columns:
            emit_event(forge, row, "pull_opened", moment, pull=columns["pull"], url=url)
        if jobs:
            emit_event(forge, row, "checks_failed", moment, jobs=[texts.single_name(job.name) for job in jobs])
            _send(row, "failed its checks", texts.failed_text(url, jobs), moment, is_return=True)
        if comments:
            emit_event(forge, row, "reviewed", moment, comments=len(comments))
            is_return = any(each.is_refusal for each in comments)
            _send(row, "was commented on", texts.reviewed_text(url, comments), moment, is_return=is_return)
        if found.left_out:
            parts = sorted({texts.single_name(each) for each in found.left_out.values()})
            emit_event(forge, row, "left_out", moment, parts=parts)
        if state in ("merged", "closed") or found.is_closed:
            end(forge, row, "closed" if found.is_closed else state)


def _send(row: ForgeIssue, what: str, text: str, moment: datetime, *, is_return: bool) -> None:
    """Send text to the agent that did the work; if it waits for a verdict, it may go back to that agent."""
    handoff = selectors.get_handoff(row.handoff_id)
    if is_return and handoff.status == HandoffStatus.SUBMITTED:
        verdicts.send_back(handoff.pk, By(operator=HUB_AGENT), text)
    elif handoff.claimed_by is not None:
        notices.notify(handoff, handoff.claimed_by, what, text, moment, by=HUB_AGENT)


def end(forge: Forge, row: ForgeIssue, how: str) -> None:
    """End the work on an issue by the forge's word: merged work is completed, all other work that is live is
    cancelled."""
    moment = now()
    who = f"{forge.kind} {forge.repository}"[:200]
    with write():
        if not ForgeIssue.objects.filter(pk=row.pk, ended="").update(ended=how, due_at=None):
            return
        emit_event(forge, row, how, moment, url=row.pull_url or row.url)
        expire(forge.workspace_id)
        handoff = selectors.get_handoff(row.handoff_id)
        reason = f"It was {how} on {who}."
        if handoff.claimed_by is not None and handoff.status in HELD and how == "merged":
            handoffs.complete(
                project_root=forge.workspace.root_realpath,
                handoff_id=handoff.pk,
                agent_id=handoff.claimed_by,
                result=reason,
            )
            handoff.refresh_from_db()
        if handoff.status == HandoffStatus.SUBMITTED and how == "merged":
            verdicts.accept(handoff.pk, By(operator=who))
        elif handoff.status == HandoffStatus.SUBMITTED:
            verdicts.send_back(handoff.pk, By(operator=who), reason)
            handoff.refresh_from_db()
        if handoff.status in HELD:
            handoff = operator_actions.release(handoff_id=handoff.pk, reason=reason, operator=who)
        if handoff.status == HandoffStatus.OPEN:
            handoffs.cancel(handoff.pk, By(operator=who), reason)


def settle_call(forge: Forge, error: ForgeError | None) -> None:
    """Store how a call to a forge went. A failure pauses it, longer after each one in a row; a refused token stops it
    until there is a new one."""
    moment = now()
    row = Forge.objects.filter(pk=forge.pk, token=forge.token)  # a new token was not refused
    with write():
        if error is None:
            row.update(polled_at=moment, failures=0, next_attempt_at=None, last_error=None)
        elif isinstance(error, TokenRefused):
            if row.filter(refused_at=None).update(refused_at=moment, last_error=str(error)[:255]):
                audit.record(HUB_AGENT, "forge.token_refused", moment, forge_id=forge.pk, repository=forge.repository)
        elif isinstance(error, Busy):
            until = moment + timedelta(seconds=min(max(error.seconds, 1), PAUSES[-1]))
            row.update(next_attempt_at=until, poll_at=until, last_error=str(error)[:255])
        else:
            failures = forge.failures + 1
            until = moment + pause(failures)
            row.update(failures=failures, next_attempt_at=until, poll_at=until, last_error=str(error)[:255])


def emit_event(forge: Forge, row: ForgeIssue, what: str, moment: datetime, **payload: Any) -> None:
    """Append an event about an issue, inside the transaction of the change."""
    emit(
        workspace_id=forge.workspace_id,
        stream=STREAM,
        type=f"forge.{what}",
        actor=None,
        payload={"forge_id": forge.pk, "repository": forge.repository, "number": row.number, **payload},
        moment=moment,
        handoff_id=row.handoff_id,
    )


def refuse_kind(kind: str) -> NexusError:
    """Return the error where the library for a forge is not installed."""
    return NexusError(Code.CONFIG_ERROR, needs_extra(kind, "forges"))
