"""The rows of this app on every transport."""

from __future__ import annotations

from typing_extensions import TypedDict

from nexus.core.clock import iso
from nexus.core.operations.parameters import Time
from nexus.hooks.models import Webhook


class WebhookRow(TypedDict):
    webhook_id: str
    url: str
    agent_id: str | None
    workspace_id: str | None
    types: list[str] | None
    allow_private: bool
    created_at: Time
    last_delivered_at: Time | None


def webhook_row(webhook: Webhook) -> WebhookRow:
    return {
        "webhook_id": webhook.webhook_id,
        "url": webhook.url,
        "agent_id": webhook.agent_id,
        "workspace_id": webhook.workspace_id,
        "types": webhook.types,
        "allow_private": webhook.allow_private,
        "created_at": iso(webhook.created_at),
        "last_delivered_at": iso(webhook.last_delivered_at),
    }
