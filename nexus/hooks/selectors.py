"""The reads of webhooks."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Count, OuterRef, Q, Subquery

from nexus.hooks.models import Webhook, WebhookDelivery, WebhookDeliveryStatus


class Listed(NamedTuple):
    """A webhook, the numbers of its pending deliveries and dead letters, and the reason of its latest failure."""

    webhook: Webhook
    pending: int
    dead: int
    last_error: str | None


def webhooks() -> list[Listed]:
    """Return every webhook, oldest first."""
    failed = WebhookDelivery.objects.filter(webhook=OuterRef("pk"), last_error__isnull=False).order_by("-event_id")
    counted = Webhook.objects.select_related("workspace").annotate(
        pending=Count("deliveries", filter=Q(deliveries__status=WebhookDeliveryStatus.PENDING)),
        dead=Count("deliveries", filter=Q(deliveries__status=WebhookDeliveryStatus.DEAD)),
        last_error=Subquery(failed.values("last_error")[:1]),
    )
    return [
        Listed(webhook, webhook.pending, webhook.dead, webhook.last_error)
        for webhook in counted.order_by("created_at", "webhook_id")
    ]


def undelivered(webhook_id: str, limit: int) -> list[WebhookDelivery]:
    """Return a webhook's deliveries that have not succeeded, dead letters first, without bodies; at most `limit`."""
    waiting = WebhookDelivery.objects.filter(webhook_id=webhook_id).defer("body")
    return list(waiting.order_by("status", "event_id")[:limit])  # "dead" sorts before "pending"


def webhook_ids() -> list[str]:
    """Return the ids of all webhooks."""
    return list(Webhook.objects.values_list("webhook_id", flat=True))
