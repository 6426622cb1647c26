"""Delivery of webhooks, each at its own pace, so that a slow receiver delays nobody else.

A server runs `WEBHOOKS` beside its requests; `nexus webhooks deliver` sends each due delivery once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nexus.core.background_work import Work, work_once
from nexus.hooks import selectors, sender, services
from nexus.hooks.models import WebhookDelivery

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
            if not services.enqueue(lane):
                break
        return services.claim(lane)

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

    def settle(self, item: WebhookDelivery, outcome: str | None) -> bool:
        services.settle(item, outcome)
        return outcome is None  # after a failure the webhook is paused


WEBHOOKS = Webhooks()


def deliver_once() -> tuple[int, int]:
    """Send each due delivery once; return the numbers of successes and failures."""
    outcomes: list[str | None] = []
    while True:
        for webhook_id in selectors.webhook_ids():
            while services.enqueue(webhook_id):
                pass
        if not (done := work_once(WEBHOOKS)):
            break
        outcomes += done
    return outcomes.count(None), len(outcomes) - outcomes.count(None)
