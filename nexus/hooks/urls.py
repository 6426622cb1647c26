"""The pages of webhooks and notices, below /admin/."""

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
    Page(
        "notices",
        "notices/",
        views.notices,
        "Notices",
        "notifications_active",
        "Hub",
        about="Where you hear, away from this tab, that something needs you.",
        position=2,
    ),
    Page("notice", "notices/<str:notice_id>/", views.notice),
    Page("webhook", "webhooks/<str:webhook_id>/", views.webhook),
)
