"""The reads of webhooks."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Count, OuterRef, Q, Subquery

from nexus.hooks.models import Webhook, WebhookDelivery, WebhookDeliveryStatus


class Listed(NamedTuple):
    """A webhook, how many of its deliveries wait and are dead letters, and why the latest that failed did."""

    webhook: Webhook
    pending: int
    dead: int
    last_error: str | None


def webhooks() -> list[Listed]:
    """Every webhook, oldest first."""
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
    """What a webhook still has to deliver, dead letters first, without the bodies; at most `limit`."""
    waiting = WebhookDelivery.objects.filter(webhook_id=webhook_id).defer("body")
    return list(waiting.order_by("status", "event_id")[:limit])  # "dead" stands before "pending"


def webhook_ids() -> list[str]:
    """The ids of every webhook."""
    return list(Webhook.objects.values_list("webhook_id", flat=True))
