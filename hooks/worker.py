"""Delivering webhooks: each at its own pace, so that a slow receiver delays nobody else.

A server runs `deliver_forever` beside its other tasks; `nexus webhooks deliver` does one round.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from core.waiting import READERS, WRITERS, in_thread, waiter
from hooks import selectors, sender, services
from hooks.models import WebhookDelivery

log = logging.getLogger(__name__)

SENDERS = ThreadPoolExecutor(8, thread_name_prefix="nexus-webhook")
IDLE_SECONDS = 5.0  # how soon a webhook that another process adds is noticed
TICK_SECONDS = 1.0  # how often retries are looked for while there are webhooks
PACE_SECONDS = 0.1  # a burst of events makes one round


def send(delivery: WebhookDelivery) -> str | None:
    """One attempt; why it failed, or None when it succeeded."""
    webhook, timestamp = delivery.webhook, int(time.time())
    headers = {
        "content-type": "application/json",
        "user-agent": "nexus-webhook",
        "webhook-id": delivery.delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sender.signature(webhook.secret, delivery.delivery_id, timestamp, delivery.body),
    }
    try:
        sender.post(webhook.url, delivery.body, headers, allow_private=webhook.allow_private)
    except sender.Undelivered as problem:
        return str(problem)
    return None


def deliver_once() -> tuple[int, int]:
    """Queue what is new and send what is due, once each; how many succeeded and how many failed."""
    sent = failed = 0
    for webhook_id in selectors.webhook_ids():
        while services.enqueue(webhook_id):
            pass
        while delivery := services.claim(webhook_id):
            error = send(delivery)
            services.settle(delivery, error)
            sent, failed = sent + (error is None), failed + (error is not None)
    return sent, failed


async def deliver_forever() -> None:
    """Deliver until cancelled; a failure of the store is logged, and the next round tries again."""
    busy: set[str] = set()
    async with asyncio.TaskGroup() as tasks:
        while True:
            try:
                webhook_ids = await in_thread(READERS, selectors.webhook_ids)
                if not webhook_ids:
                    await asyncio.sleep(IDLE_SECONDS)
                    continue
                async with waiter().park(lambda event: True) as parked:
                    for webhook_id in await _due(webhook_ids):
                        if webhook_id not in busy:
                            busy.add(webhook_id)
                            tasks.create_task(_deliver(webhook_id)).add_done_callback(
                                lambda _, done=webhook_id: busy.discard(done)  # type: ignore[misc]
                            )
                    await parked.wait(TICK_SECONDS)
            except Exception as error:
                log.warning("Webhooks could not be looked after (%s); they are tried again.", error)
                await asyncio.sleep(TICK_SECONDS)
            await asyncio.sleep(PACE_SECONDS)


async def _due(webhook_ids: list[str]) -> list[str]:
    """Queue what is new; the webhooks with something to send."""
    for webhook_id in webhook_ids:
        while await in_thread(WRITERS, partial(services.enqueue, webhook_id)):
            pass
    return await in_thread(READERS, selectors.due)


async def _deliver(webhook_id: str) -> None:
    """Send a webhook's due deliveries in order, until one fails or none is left."""
    error: str | None = None
    try:
        while error is None and (delivery := await in_thread(WRITERS, partial(services.claim, webhook_id))):
            error = await in_thread(SENDERS, partial(send, delivery))
            await in_thread(WRITERS, partial(services.settle, delivery, error))
    except Exception as problem:
        log.warning("A delivery of %s was not recorded (%s); it is sent again.", webhook_id, problem)
