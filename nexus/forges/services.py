"""Services of connected forges: connect, disconnect, take an issue, and what an answer of the forge changes.

Nothing here calls a forge; `rounds` does, between two transactions.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from coordination.ids import new_id
from coordination.log.emit import emit
from coordination.routing import Strategy, parse_target
from coordination.services import audit, tags, workspaces
from handoffs import lifecycle
from handoffs import services as handoffs
from handoffs.models import single_line
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import Code, NexusError, invalid, not_found
from nexus.forges import texts
from nexus.forges.models import STREAM, Forge, ForgeDelivery, ForgeIssue, ForgeKind
from nexus.forges.protocol import Issue
from nexus.hooks.sender import check_url

URLS = {ForgeKind.GITHUB: "https://api.github.com", ForgeKind.GITLAB: "https://gitlab.com"}
MOST = 100  # connected forges
MAX_TOKEN = 1_000


def connect(
    *,
    kind: str,
    repository: str,
    project_root: str,
    token: str,
    url: str | None,
    label: str | None,
    assignee: str | None,
    target: Any,
    base: str | None,
    operator: str,
) -> Forge:
    """Take issues of a repository from now on; for one that is connected already, replace its token.

    Raises VALIDATION_ERROR, WORKSPACE_UNRESOLVED, NOT_FOUND for a tag or agent of the target.
    """
    address = (url or URLS[ForgeKind(kind)]).rstrip("/")
    host = check_url(address, allow_private=True).hostname
    parts = repository.split("/")
    if len(parts) < 2 or (kind == ForgeKind.GITHUB and len(parts) != 2) or not all(map(_is_name, parts)):
        raise invalid("repository must be OWNER/REPO.", field="repository")
    if not (token.isascii() and token.isprintable() and " " not in token and 0 < len(token) <= MAX_TOKEN):
        raise invalid("token must be one word of plain characters.", field="token")
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
        chosen = {"token": token, "label": label, "assignee": assignee, "target": parsed, "base": base}
        fresh = {"poll_at": moment, "failures": 0, "next_attempt_at": None, "last_error": None, "refused_at": None}
        if known is not None:
            Forge.objects.filter(pk=known.pk).update(**chosen, **fresh, etag="")
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
            since=datetime(1970, 1, 2, tzinfo=UTC),  # what has the label already is taken, too
            **chosen,
            **fresh,
        )
        audit.record(operator, "forge.connected", moment, forge_id=row.pk, repository=repository, host=host)
    return row


def _is_name(part: str) -> bool:
    return part not in (".", "..") and part.isascii() and all(letter.isalnum() or letter in "-_." for letter in part)


def disconnect(*, forge_id: str, operator: str) -> Forge:
    """Forget a repository and its token. Its handoffs stay. Raises NOT_FOUND."""
    with write():
        row = find(forge_id)
        Forge.objects.filter(pk=forge_id).delete()
        audit.record(operator, "forge.disconnected", now(), forge_id=forge_id, repository=row.repository)
    return row


def find(forge_id: str) -> Forge:
    """Return a connected repository. Raises NOT_FOUND."""
    row = Forge.objects.filter(pk=forge_id).select_related("workspace").first()
    if row is None:
        raise not_found("forge", forge_id[:200])
    return row


def is_wanted(forge: Forge, issue: Issue) -> bool:
    """Return whether an issue is taken by its label or its assignee."""
    return issue.is_open and (forge.label in issue.labels or forge.assignee in issue.assignees)


def take(forge: Forge, issue: Issue) -> ForgeIssue:
    """Make a handoff of an issue, once; an operator verifies it. Raises the errors of a new handoff."""
    known = ForgeIssue.objects.filter(forge=forge, number=issue.number).first()
    if known is not None:
        return known
    created = handoffs.create(
        project_root=forge.workspace.root_realpath,
        from_agent_id=OPERATOR_AGENT,
        target=forge.target,
        visibility="public",
        title=single_line(f"#{issue.number} {issue.title}"),
        payload=texts.work_text(forge.repository, issue),
        verifier=lifecycle.OPERATOR,
        client_id=f"{forge.pk}:{issue.number}",  # a second process, or a crash after this, makes no second one
    )
    moment = now()
    with write():
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


def receive(forge: Forge, delivery: str, event: str) -> bool:
    """Store a call of a forge's webhook and have the forge looked at soon; return whether the call is new."""
    moment = now()
    with write():
        new = ForgeDelivery(forge=forge, delivery=delivery, event=event, received_at=moment)
        if ForgeDelivery.objects.filter(forge=forge, delivery=delivery).exists():
            return False
        new.save(force_insert=True)
        Forge.objects.filter(pk=forge.pk, poll_at__gt=moment).update(poll_at=moment)
        ForgeIssue.objects.filter(forge=forge, due_at__gt=moment).update(due_at=moment)
    return True


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
    return NexusError(Code.CONFIG_ERROR, f"{kind} needs the extra: pip install 'nexus-hub[forges]'")
