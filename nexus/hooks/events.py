"""The events of webhooks and notices, and the sentences that pages show for them."""

from __future__ import annotations

from nexus.core.contributions import Sentence

SENTENCES = {
    "notice.added": Sentence("{actor} added the address {name} for notices", "{count} addresses for notices added"),
    "notice.changed": Sentence("{actor} changed an address for notices", "{count} addresses for notices changed"),
    "notice.removed": Sentence("{actor} removed an address for notices", "{count} addresses for notices removed"),
    "webhook.added": Sentence("{actor} added a webhook to {host}", "{count} webhooks added"),
    "webhook.redelivered": Sentence("{actor} had a webhook tried again", "{count} webhooks tried again"),
    "webhook.removed": Sentence("{actor} removed a webhook", "{count} webhooks removed"),
}
