"""The pages of webhooks, below /admin/."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.hooks import views

PAGES = (
    Page(
        "webhooks",
        "webhooks/",
        views.webhooks,
        "Webhooks",
        "webhook",
        "Hub",
        words={"allow_private": "“The address may be private”"},
        about="Addresses that are called with events.",
        position=1,
    ),
    Page("webhook", "webhooks/<str:webhook_id>/", views.webhook),
)
