"""The events of webhooks, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "webhook.added": Sentence("{actor} added a webhook to {host}", "{count} webhooks added"),
    "webhook.redelivered": Sentence(
        "{actor} retries {deliveries} webhook deliveries", "{count} retries of webhook deliveries"
    ),
    "webhook.removed": Sentence("{actor} removed a webhook", "{count} webhooks removed"),
}
