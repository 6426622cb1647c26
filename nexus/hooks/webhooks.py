"""Webhooks: URLs to which a running hub sends events, in the order of the log.

The log is the queue, and `Webhook.cursor` the position in it. The hub runs `WEBHOOKS` beside its requests: each webhook
at its own pace, so that a slow receiver delays nobody else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import F, Q, QuerySet

from coordination import selectors as agents_known
from coordination.ids import new_id
from coordination.log import selectors as log
from coordination.models import Event
from coordination.routing import Profile
from coordination.rows import event_row
from coordination.selectors import require_agent
from coordination.services import audit, workspaces
from handoffs.models import STREAM
from inbox.models import ARRIVALS
from nexus.core.apps import event_types
from nexus.core.background_work import BackgroundWork
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid, not_found
from nexus.hooks import sender
from nexus.hooks.models import PAUSES, Webhook
from nexus.hooks.signals import concerned

MAX_ATTEMPTS = 24  # of one event: for almost a day
EVENTS_AT_ONCE = 500
LOOKS = 4  # batches of events in one go: other writes of this process wait meanwhile


def add(
    *,
    url: str,
    agent_id: str | None,
    project_root: str | None,
    types: Sequence[str] | None,
    allow_private: bool,
    operator: str,
) -> Webhook:
    """Send every event from now on to `url` that concerns the given agent, workspace and types.

    Raises VALIDATION_ERROR (url, types), NOT_FOUND (agent), WORKSPACE_UNRESOLVED.
    """
    for type in types or ():
        if type not in event_types():  # a mistyped type would never match
            raise invalid(f"There is no event type {type!r}; the types are {', '.join(event_types())}.", field="types")
    host = sender.check_url(url, allow_private=allow_private).hostname
    workspace, moment = workspaces.locate(project_root) if project_root is not None else None, now()
    with write():
        if agent_id is not None:
            require_agent(agent_id)
        if workspace is not None:
            workspaces.ensure(workspace, moment)
        webhook = Webhook.objects.create(
            webhook_id=new_id("whk"),
            url=url,
            secret=sender.new_secret(),
            agent_id=agent_id,
            workspace_id=workspace.workspace_id if workspace else None,
            types=list(types) if types else None,
            allow_private=allow_private,
            cursor=log.newest_event_id(),
            created_at=moment,
        )
        # Only the host: a path or a query may contain a token.
        audit.record(operator, "webhook.added", moment, webhook_id=webhook.webhook_id, host=host, agent_id=agent_id)
    return webhook


def remove(*, webhook_id: str, operator: str) -> None:
    """Remove a webhook. Raises NOT_FOUND."""
    with write():
        _find(webhook_id).delete()
        audit.record(operator, "webhook.removed", now(), webhook_id=webhook_id)


def end_pause(*, webhook_id: str, operator: str) -> Webhook:
    """Try a failing webhook again now, with all attempts. Raises NOT_FOUND."""
    with write():
        webhook = _find(webhook_id)
        webhook.failures, webhook.next_attempt_at = 0, None
        webhook.save(update_fields=["failures", "next_attempt_at"])
        audit.record(operator, "webhook.redelivered", now(), webhook_id=webhook_id)
    return webhook


def _find(webhook_id: str) -> Webhook:
    webhook = Webhook.objects.filter(pk=webhook_id).first()
    if webhook is None:
        raise not_found("webhook", webhook_id)
    return webhook


def _concerns(event: Event, webhook: Webhook, agent: Profile | None, moment: datetime) -> bool:
    if webhook.workspace_id not in (None, event.workspace_id):
        return False
    if webhook.types is not None and event.type not in webhook.types:
        return False
    if agent is None:
        return True
    if event.type in ARRIVALS:
        return agent.agent_id in event.payload["recipients"]
    if event.stream == STREAM:
        return log.event_visible(event, agent, moment)
    return agent.agent_id in concerned(event)


def _next_event(webhook: Webhook) -> Event | None:
    """Return the next event that concerns a webhook, and move its cursor past those before it that do not."""
    agent = agents_known.profile_of(webhook.agent_id) if webhook.agent_id is not None else None
    moment = now()
    for _ in range(LOOKS):
        passed, found, seen = webhook.cursor, None, 0
        for event in Event.objects.filter(event_id__gt=webhook.cursor).order_by("event_id")[:EVENTS_AT_ONCE]:
            seen += 1
            if _concerns(event, webhook, agent, moment):
                found = event
                break
            passed = event.event_id
        if passed > webhook.cursor:
            Webhook.objects.filter(pk=webhook.pk, cursor=webhook.cursor).update(cursor=passed)
            webhook.cursor = passed
        if found is not None or seen < EVENTS_AT_ONCE:
            return found
    return None


class Delivery(NamedTuple):
    """One event on its way to one webhook."""

    webhook: Webhook  # as it was before the attempt
    event_id: int
    body: str

    @property
    def delivery_id(self) -> str:
        """The id by which a receiver recognises an event that comes again."""
        return f"{self.webhook.pk}-{self.event_id}"


class Webhooks(BackgroundWork[Delivery, str | None]):
    """Background work: a webhook is a queue. The outcome is the reason of a failure, or None."""

    name = "webhooks"
    threads = 8
    watches_log = True

    def queues(self) -> Sequence[str]:
        return list(_due().values_list("pk", flat=True))

    def claim(self, queue: str) -> Delivery | None:
        """Take the next event for one attempt, and set when the next attempt is due if this process dies meanwhile."""
        webhook = _due().filter(pk=queue).first()
        event = _next_event(webhook) if webhook is not None else None
        if webhook is None or event is None:
            return None
        before = {name: getattr(webhook, name) for name in ("pk", "cursor", "failures", "next_attempt_at")}
        again = now() + _pause(webhook.failures + 1)
        if not Webhook.objects.filter(**before).update(failures=F("failures") + 1, next_attempt_at=again):
            return None  # another hub sends it
        data = {"type": event.type, "timestamp": iso(event.created_at), "data": event_row(event)}
        return Delivery(webhook, event.event_id, json.dumps(data))

    def act(self, item: Delivery) -> str | None:
        webhook, timestamp = item.webhook, int(time.time())
        headers = {
            "content-type": "application/json",
            "user-agent": "nexus-webhook",
            "webhook-id": item.delivery_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sender.signature(webhook.secret, item.delivery_id, timestamp, item.body),
        }
        try:
            sender.post(webhook.url, item.body, headers, allow_private=webhook.allow_private)
        except sender.Undelivered as problem:
            return str(problem)
        return None

    def given_up(self, item: Delivery, why: str) -> str:
        return why

    def settle(self, item: Delivery, outcome: str | None) -> bool:
        """Store the outcome: a success, or after the last attempt the end of trying, moves the cursor past the event. A
        failure pauses the webhook, longer after each in a row."""
        moment, failures = now(), item.webhook.failures + 1
        row = Webhook.objects.filter(pk=item.webhook.pk, cursor=item.webhook.cursor)
        with write():
            if outcome is None:
                row.update(
                    cursor=item.event_id, last_delivered_at=moment, last_error=None, failures=0, next_attempt_at=None
                )
            elif failures < MAX_ATTEMPTS:
                row.update(last_error=outcome[:255], next_attempt_at=moment + _pause(failures))
            else:
                row.update(
                    cursor=item.event_id,
                    last_error=outcome[:255],
                    failures=0,
                    next_attempt_at=moment + _pause(failures),
                    given_up=F("given_up") + 1,
                )
        return outcome is None


def _due() -> QuerySet[Webhook]:
    """Return the webhooks that are not paused after a failure."""
    return Webhook.objects.filter(Q(next_attempt_at=None) | Q(next_attempt_at__lte=now()))


def _pause(failures: int) -> timedelta:
    """Return the time until the next attempt after so many failures in a row; it is longer than a request may take."""
    return timedelta(seconds=PAUSES[min(failures, len(PAUSES)) - 1])


WEBHOOKS = Webhooks()
