"""The reads of webhooks."""

from __future__ import annotations

from typing import NamedTuple

from django.db.models import Count, Q

from hooks.models import Webhook, WebhookDeliveryStatus


class Listed(NamedTuple):
    """A webhook, how many of its deliveries wait and are dead letters, and why the latest that failed did."""

    webhook: Webhook
    pending: int
    dead: int
    last_error: str | None


def webhooks() -> list[Listed]:
    """Every webhook, oldest first."""
    counted = Webhook.objects.annotate(
        pending=Count("deliveries", filter=Q(deliveries__status=WebhookDeliveryStatus.PENDING)),
        dead=Count("deliveries", filter=Q(deliveries__status=WebhookDeliveryStatus.DEAD)),
    )
    return [
        Listed(webhook, webhook.pending, webhook.dead, _last_error(webhook))
        for webhook in counted.order_by("created_at", "webhook_id")
    ]


def _last_error(webhook: Webhook) -> str | None:
    failed = webhook.deliveries.filter(last_error__isnull=False).order_by("-event_id")
    return failed.values_list("last_error", flat=True).first()


def webhook_ids() -> list[str]:
    """The ids of every webhook."""
    return list(Webhook.objects.values_list("webhook_id", flat=True))
