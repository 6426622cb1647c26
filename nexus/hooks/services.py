"""Services of webhooks: add, remove, queue events, claim a delivery, settle it. One transaction each.

A server runs `WEBHOOKS` beside its requests: each webhook at its own pace, so that a slow receiver delays nobody else.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import F, Q

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
from nexus.core.background_work import Work, work_once
from nexus.core.clock import iso, now
from nexus.core.database.store import write
from nexus.core.operations.errors import invalid, not_found
from nexus.hooks import selectors, sender
from nexus.hooks.models import BACKOFF, MAX_ATTEMPTS, PAUSES, Webhook, WebhookDelivery, WebhookDeliveryStatus
from nexus.hooks.signals import concerned

MAX_QUEUED = 100  # deliveries kept per webhook; further events wait in the log
EVENTS_AT_ONCE = 500


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


def remove(*, webhook_id: str, operator: str) -> int:
    """Remove a webhook; return the number of its deliveries. Raises NOT_FOUND."""
    with write():
        webhook = _find(webhook_id)
        dropped = webhook.deliveries.count()
        webhook.delete()
        audit.record(operator, "webhook.removed", now(), webhook_id=webhook_id, deliveries_dropped=dropped)
    return dropped


def redeliver(*, webhook_id: str, operator: str) -> int:
    """Give a webhook's dead letters all their attempts again, from now; return how many there were. Raises
    NOT_FOUND."""
    moment = now()
    with write():
        revived = (
            _find(webhook_id)
            .deliveries.filter(status=WebhookDeliveryStatus.DEAD)
            .update(status=WebhookDeliveryStatus.PENDING, attempts=0, next_attempt_at=moment)
        )
        Webhook.objects.filter(pk=webhook_id).update(failures=0, next_attempt_at=None)
        audit.record(operator, "webhook.redelivered", moment, webhook_id=webhook_id, deliveries=revived)
    return revived


def enqueue(webhook_id: str) -> bool:
    """Turn events after a webhook's cursor into deliveries, as many as it has room for; return whether to call
    again."""
    newest = log.newest_event_id()
    if not Webhook.objects.filter(pk=webhook_id, cursor__lt=newest).exists():
        return False  # only reading must not take the writer's lock
    moment = now()
    with write():
        webhook = Webhook.objects.filter(pk=webhook_id).first()
        room = MAX_QUEUED - WebhookDelivery.objects.filter(webhook_id=webhook_id).count()
        if webhook is None or room <= 0:
            return False
        agent = agents_known.profile_of(webhook.agent_id) if webhook.agent_id is not None else None
        chosen: list[Event] = []
        examined = webhook.cursor
        for event in Event.objects.filter(event_id__gt=webhook.cursor).order_by("event_id")[:EVENTS_AT_ONCE]:
            if len(chosen) == room:
                break
            examined = event.event_id
            if _concerns(event, webhook, agent, moment):
                chosen.append(event)
        WebhookDelivery.objects.bulk_create(
            WebhookDelivery(
                delivery_id=new_id("wdl"),
                webhook=webhook,
                event_id=event.event_id,
                body=json.dumps({"type": event.type, "timestamp": iso(event.created_at), "data": event_row(event)}),
                next_attempt_at=moment,
                created_at=moment,
            )
            for event in chosen
        )
        Webhook.objects.filter(pk=webhook_id).update(cursor=examined)
    return True


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


def claim(webhook_id: str) -> WebhookDelivery | None:
    """Take the webhook's oldest due delivery for one attempt, and set when the next attempt is due if this one fails.

    None while the webhook is paused after failures. So a process that dies while sending loses nothing: the delivery is
    sent again, with the same id.
    """
    moment = now()
    paused = Q(webhook__next_attempt_at__gt=moment)
    due = WebhookDelivery.objects.due(moment).filter(~paused, webhook_id=webhook_id).select_related("webhook")
    for delivery in due.order_by("event_id")[:10]:
        wait = timedelta(seconds=BACKOFF[min(delivery.attempts, len(BACKOFF) - 1)])
        same = WebhookDelivery.objects.filter(
            pk=delivery.pk, status=WebhookDeliveryStatus.PENDING, attempts=delivery.attempts
        )
        if same.update(attempts=F("attempts") + 1, next_attempt_at=moment + wait):
            delivery.attempts += 1
            return delivery
    return None


def settle(delivery: WebhookDelivery, error: str | None) -> None:
    """Store the outcome of an attempt: done, to be retried, or after the last attempt a dead letter.

    A failure also pauses the webhook, longer after each failure in a row; a success ends that.
    """
    row, moment = WebhookDelivery.objects.filter(pk=delivery.pk), now()
    webhook = Webhook.objects.filter(pk=delivery.webhook_id)
    with write():
        if error is None:
            row.delete()
            webhook.update(last_delivered_at=moment, failures=0, next_attempt_at=None)
            return
        dead = {"status": WebhookDeliveryStatus.DEAD} if delivery.attempts >= MAX_ATTEMPTS else {}
        row.update(last_error=error[:255], **dead)
        failures = delivery.webhook.failures + 1
        pause = timedelta(seconds=PAUSES[min(failures, len(PAUSES)) - 1])
        webhook.update(failures=failures, next_attempt_at=moment + pause)


def _find(webhook_id: str) -> Webhook:
    webhook = Webhook.objects.filter(pk=webhook_id).first()
    if webhook is None:
        raise not_found("webhook", webhook_id)
    return webhook


LOOKS = 4  # batches of events in one go: other writes of this process wait meanwhile


class Webhooks(Work[WebhookDelivery, str | None]):
    """Background work: a webhook is a lane, a delivery an item. The outcome is the reason of a failure, or None."""

    name = "webhooks"
    threads = 8
    watches_log = True

    def lanes(self) -> Sequence[str]:
        return selectors.webhook_ids()

    def claim(self, lane: str) -> WebhookDelivery | None:
        for _ in range(LOOKS):
            if not enqueue(lane):
                break
        return claim(lane)

    def act(self, item: WebhookDelivery) -> str | None:
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

    def given_up(self, item: WebhookDelivery, why: str) -> str:
        return why

    def settle(self, item: WebhookDelivery, outcome: str | None) -> bool:
        settle(item, outcome)
        return outcome is None  # after a failure the webhook is paused


WEBHOOKS = Webhooks()


def deliver_once() -> tuple[int, int]:
    """Send each due delivery once; return the numbers of successes and failures."""
    outcomes: list[str | None] = []
    while True:
        for webhook_id in selectors.webhook_ids():
            while enqueue(webhook_id):
                pass
        if not (done := work_once(WEBHOOKS)):
            break
        outcomes += done
    return outcomes.count(None), len(outcomes) - outcomes.count(None)
