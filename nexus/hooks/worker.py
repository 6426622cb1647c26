"""Delivering webhooks: each at its own pace, so that a slow receiver delays nobody else.

A server does `WEBHOOKS` beside its requests; `nexus webhooks deliver` does what is due once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from nexus.core.work import Work, work_once
from nexus.hooks import selectors, sender, services
from nexus.hooks.models import WebhookDelivery

LOOKS = 4  # at the log in one go: every write of this process waits meanwhile


class Webhooks(Work[WebhookDelivery, str | None]):
    """A webhook is a lane, a delivery an item; its outcome is why the attempt failed, or None."""

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
        return outcome is None  # a receiver that failed is left alone for a while


WEBHOOKS = Webhooks()


def deliver_once() -> tuple[int, int]:
    """Send what is due, once each; how many succeeded and how many failed."""
    outcomes: list[str | None] = []
    while True:
        for webhook_id in selectors.webhook_ids():
            while services.enqueue(webhook_id):
                pass
        if not (done := work_once(WEBHOOKS)):
            break
        outcomes += done
    return outcomes.count(None), len(outcomes) - outcomes.count(None)
