"""The reads of handoffs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from django.db import connection
from django.db.models import Count, Min, Q, QuerySet, TextField
from django.db.models.functions import Cast
from typing_extensions import TypedDict

from coordination import selectors as agents_known
from coordination.models import Event, Workspace
from coordination.routing import Profile, Strategy, can_see, is_eligible, next_opening
from handoffs import checks, lifecycle
from handoffs.dependencies import count_waiting
from handoffs.models import LIVE, CheckRun, CheckRunQuerySet, Dependency, Handoff, HandoffStatus, can_start
from handoffs.transitions import work
from inbox.models import Message
from inbox.receipts import Act
from nexus.core.clock import iso, now
from nexus.core.fulltext import fts5_query, tsquery, words_of
from nexus.core.operations.errors import not_found
from nexus.core.operations.parameters import Time
from nexus.core.size_limits import fitting

READ_AT_ONCE = 200
EXAMINED_AT_ONCE = 2_000  # open handoffs that one look holds against an agent


@dataclass(frozen=True)
class HandoffPage:
    """A page of handoffs; next_cursor is null on the last one."""

    handoffs: list[Handoff]
    next_cursor: str | None


def available(*, workspace_id: str, agent_id: str, after: int, limit: int, ready_only: bool = False) -> HandoffPage:
    """Return the open handoffs that an agent may see and claim, oldest first, without those that wait for others;
    `ready_only` leaves out those whose task has unfinished dependencies, too.

    A page has a next_cursor whenever the search stopped before the end: also when it found nothing so far, or when its
    texts filled the page before `limit` was reached.
    """
    agent, moment = agents_known.profile_of(agent_id), now()
    found: list[Handoff] = []
    examined, left = after, EXAMINED_AT_ONCE
    here = Handoff.objects.filter(can_start(), workspace_id=workspace_id).exclude(deadline_at__lt=moment)
    # No index serves both. In this order, so that one whose end is recorded meanwhile is in the second list.
    pool = [here.lapsed(moment), here.open()]
    if ready_only and any(rows.filter(task_key__isnull=False).exists() for rows in pool):
        ready = Q(task_key=None) | Q(task_key__in=work().ready(workspace_id))
        pool = [rows.filter(ready) for rows in pool]
    while batch := _oldest(pool, after=examined):
        for handoff in batch:
            if visible(handoff, agent, moment) and eligible(handoff, agent, moment):
                if len(found) == limit:
                    return _page(found, str(examined))
                found.append(handoff)
            examined = handoff.created_event_id
        left -= len(batch)
        if len(batch) < READ_AT_ONCE:
            break
        if left <= 0:
            return _page(found, str(examined))
    return _page(found, None)


def dependencies(handoff: Handoff) -> list[Handoff]:
    """Return what a handoff depends on, in the order in which its creator named it."""
    rows = Dependency.objects.filter(handoff=handoff).select_related("depends_on").order_by("pk")
    return [row.depends_on for row in rows.defer("depends_on__payload", "depends_on__result")]


def unfinished(handoff: Handoff) -> list[str]:
    """Return the ids of what a handoff waits for."""
    left = Dependency.objects.filter(handoff=handoff, done=False)
    return list(left.order_by("pk").values_list("depends_on", flat=True))


def count_dependents(handoff_ids: Collection[str]) -> Mapping[str, int]:
    """Return how many live handoffs wait for each of these, which were begun, also by way of others."""
    pending: dict[str, list[str]] = defaultdict(list)
    here = Handoff.objects.filter(pk__in=handoff_ids).values("workspace")
    rows = Dependency.objects.filter(done=False, handoff__status__in=LIVE, handoff__workspace__in=here)
    for handoff_id, depends_on in rows.values_list("handoff", "depends_on") if handoff_ids else ():
        pending[handoff_id].append(depends_on)
    return count_waiting(pending, {each: each for each in handoff_ids})


def _oldest(lists: Iterable[QuerySet[Handoff]], *, after: int) -> list[Handoff]:
    """Return the next READ_AT_ONCE handoffs of several lists after an event; each list is read along its index."""
    heads = [rows.filter(created_event_id__gt=after).order_by("created_event_id")[:READ_AT_ONCE] for rows in lists]
    found = {handoff.created_event_id: handoff for handoff in chain.from_iterable(heads)}
    return [found[event_id] for event_id in sorted(found)[:READ_AT_ONCE]]


def _page(found: list[Handoff], next_cursor: str | None) -> HandoffPage:
    page = fitting(found, lambda handoff: len(handoff.payload or ""))
    return HandoffPage(page, next_cursor if len(page) == len(found) else str(page[-1].created_event_id))


def visible(handoff: Handoff, agent: Profile, moment: datetime) -> bool:
    """Return whether an agent of the handoff's workspace may see it; its creator always may."""
    return can_see(
        visibility=handoff.visibility,
        target=handoff.target,
        actor=handoff.from_agent_id,
        item_workspace=handoff.workspace_id,
        workspace=handoff.workspace_id,
        agent=agent,
        created_at=handoff.created_at,
        now=moment,
    )


def eligible(handoff: Handoff, agent: Profile, moment: datetime) -> bool:
    """Return whether the target admits an agent now."""
    return is_eligible(handoff.target, agent, created_at=handoff.created_at, now=moment)


def next_change(workspace_id: str) -> datetime | None:
    """Return when time alone next makes a handoff of the workspace available: a lease expires or a fallback opens."""
    moment = now()
    here = Handoff.objects.filter(workspace_id=workspace_id)
    lapses = here.held().filter(lease_expires_at__gte=moment).aggregate(first=Min("lease_expires_at"))["first"]
    moments = [lapses + timedelta(microseconds=1)] if lapses else []  # the boundary itself does not expire
    timed = here.in_state(HandoffStatus.OPEN, moment).alias(text=Cast("target", TextField()))
    timed = timed.filter(text__contains=Strategy.DIRECT_WITH_FALLBACK.value).order_by("created_event_id")
    for target, created_at in timed.values_list("target", "created_at")[:EXAMINED_AT_ONCE]:
        if opening := next_opening(target, created_at=created_at, now=moment):
            moments.append(opening)
    return min(moments, default=None)


def held_by(agent_id: str, moment: datetime, *, workspace_id: str | None = None) -> list[Handoff]:
    """Return the handoffs that an agent holds, earliest end of lease first."""
    rows = Handoff.objects.held().filter(claimed_by=agent_id, lease_expires_at__gte=moment)
    if workspace_id is not None:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.select_related("workspace").order_by("lease_expires_at")[:READ_AT_ONCE])


def state_at(handoff: Handoff, moment: datetime) -> str:
    """Return the current state, whether or not it was recorded yet."""
    return lifecycle.state_at(
        status=handoff.status,
        lease_expires_at=handoff.lease_expires_at,
        deadline_at=handoff.deadline_at,
        now=moment,
    )


def with_current_status(handoff: Handoff, moment: datetime) -> Handoff:
    """Return the handoff with its state at `moment`: a claim whose lease expired counts as open, recorded or not."""
    if lifecycle.lapsed(lease_expires_at=handoff.lease_expires_at, now=moment):
        handoff.claimed_by, handoff.claimed_at, handoff.blocked_reason = None, None, None
    handoff.status = state_at(handoff, moment)
    if handoff.claimed_by is None:
        handoff.lease_expires_at = None
    return handoff


def parts(handoff: Handoff, agent_id: str) -> set[lifecycle.Party]:
    """Return what an agent is to a handoff."""
    direct = handoff.target["strategy"] == Strategy.DIRECT and handoff.target["agent_id"] == agent_id
    verifier = handoff.verifier is not None and handoff.verifies(agents_known.profile_of(agent_id))
    of = {
        lifecycle.Party.CLAIMANT: handoff.claimed_by == agent_id,
        lifecycle.Party.TARGET: direct,
        lifecycle.Party.CREATOR: handoff.from_agent_id == agent_id,
        lifecycle.Party.VERIFIER: verifier,
    }
    return {part for part, holds in of.items() if holds}


def check_runs_of(handoff: Handoff) -> CheckRunQuerySet:
    """Return the checks of a handoff's results; without a query none where Nexus tests nothing of it."""
    rows = CheckRun.objects.all() if checks.tests(handoff.acceptance_criteria) else CheckRun.objects.none()
    return rows.filter(handoff=handoff)


def list_handoffs(*, workspace_id: str | None, status: str | None, limit: int) -> list[Handoff]:
    """Return handoffs for an operator: those in a state, newest first, or those that are not settled, oldest first."""
    if status is None:
        rows = Handoff.objects.live().order_by("created_event_id")
    else:
        rows = Handoff.objects.in_state(status, now()).order_by("-created_event_id")
    if workspace_id is not None:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.select_related("workspace")[:limit])


def get_handoff(handoff_id: str) -> Handoff:
    """Return a handoff of any workspace. Raises NOT_FOUND."""
    handoff = Handoff.objects.filter(pk=handoff_id).select_related("workspace").first()
    if handoff is None:
        raise not_found("handoff", handoff_id)
    return handoff


class HandoffOutcome(TypedDict):
    """How a settled handoff ended."""

    by: str | None
    at: Time
    result: str | None
    reason: str | None


def outcome(handoff: Handoff) -> HandoffOutcome | None:
    """Return how a handoff ended: `by` whom, `at`, and its `result` or the `reason`; None while it is live.

    Only the log has the actor, and the reason of a cancellation: both are null once retention has removed that event.
    """
    if handoff.status in LIVE:
        return None
    type = f"handoff.{handoff.status.lower()}"
    event = Event.objects.filter(handoff_id=handoff.handoff_id, type=type).order_by("event_id").last()
    payload = event.payload if event else {}
    by = payload.get("operator") or (event.actor_agent_id if event else None)
    return {
        "by": by or handoff.claimed_by,
        "at": iso(handoff.updated_at),
        "result": handoff.result,
        "reason": handoff.rejected_reason or payload.get("reason"),
    }


def column(statuses: Sequence[str], limit: int, *, workspace_id: str | None = None) -> list[Handoff]:
    """Return the newest handoffs in some states."""
    rows = Handoff.objects.filter(status__in=statuses)
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.select_related("workspace").defer("payload", "result").order_by("-created_event_id")[:limit])


def counts(statuses: Collection[str] = HandoffStatus.values, *, workspace_id: str | None = None) -> dict[str, int]:
    """Count the handoffs in each of these states."""
    workspaces = Workspace.objects.filter(pk=workspace_id) if workspace_id else Workspace.objects.all()
    rows = Handoff.objects.filter(workspace__in=workspaces.values("pk"), status__in=statuses)  # by their index
    counted = dict(rows.values_list("status").annotate(Count("status")).order_by())
    return {status: counted.get(status, 0) for status in statuses}


def count_for_operator() -> int:
    """Count the submitted handoffs whose verifier is the operator."""
    submitted = Handoff.objects.filter(workspace__in=Workspace.objects.values("pk"), status=HandoffStatus.SUBMITTED)
    return submitted.filter(verifier=lifecycle.OPERATOR).count()


def live(*, workspace_id: str | None = None, limit: int = 500) -> list[Handoff]:
    """Return the handoffs that are not settled, oldest first, with their state and the agents involved."""
    rows = Handoff.objects.live().only("title", "status", "from_agent_id", "claimed_by")
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.order_by("created_event_id")[:limit])


def offered_by(agent_id: str, limit: int) -> list[Handoff]:
    """Return the unsettled handoffs that an agent created, oldest first."""
    here = Workspace.objects.values("pk")  # by their index, and not through all that was ever settled
    rows = Handoff.objects.live().filter(from_agent_id=agent_id, workspace__in=here)
    return list(rows.only("title", "status", "claimed_by", "target").order_by("created_event_id")[:limit])


def open_handoffs(moment: datetime, limit: int, *, workspace_id: str | None = None) -> list[Handoff]:
    """Return the open handoffs, oldest first."""
    rows = Handoff.objects.in_state(HandoffStatus.OPEN, moment).defer("payload")
    if workspace_id:
        rows = rows.filter(workspace_id=workspace_id)
    return list(rows.order_by("created_event_id")[:limit])


NEWEST_SQLITE = "SELECT rowid FROM handoff_search WHERE handoff_search MATCH %s ORDER BY rowid DESC LIMIT %s"
NEWEST_POSTGRESQL = "SELECT document FROM handoff_search WHERE words @@ %s::tsquery ORDER BY document DESC LIMIT %s"
REBUILD_SEARCH = "INSERT INTO handoff_search(handoff_search) VALUES ('rebuild')"  # on SQLite


def containing(text: str, limit: int) -> list[int]:
    """Return the `created_event_id`s of the newest handoffs with every word of `text`; a word matches from its
    beginning."""
    words = words_of(text)
    if not words:
        return []
    if connection.vendor == "postgresql":
        wanted = tsquery(words)
        return [] if wanted is None else _newest(NEWEST_POSTGRESQL, wanted.text, limit)
    return _newest(NEWEST_SQLITE, fts5_query(words), limit)


def naming(message: Message, agents: Collection[str]) -> Iterator[Act]:
    """Yield the newest handoffs of these agents that name a message."""
    found = Handoff.objects.filter(
        created_event_id__in=containing(message.message_id, READ_AT_ONCE), from_agent_id__in=agents
    )
    for creator, handoff_id, created_at in found.values_list("from_agent_id", "handoff_id", "created_at"):
        yield Act(creator, f"handoff {handoff_id}", created_at)


def _newest(statement: str, wanted: str, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [wanted, limit])
        return [row[0] for row in cursor.fetchall()]
