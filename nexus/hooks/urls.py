"""What the sidebar and the help say of webhooks and notices."""

from __future__ import annotations

from nexus.core.contributions import Page

PAGES = (
    Page(
        "hooks_webhook_changelist",
        title="Webhooks",
        icon="webhook",
        section="Hub",
        words={"allow_private": "“Allow private”"},
        about="Addresses that are called with events.",
        position=3,
    ),
    Page(
        "hooks_noticeaddress_changelist",
        title="Notices",
        icon="notifications_active",
        section="Hub",
        about="Where you hear, away from this tab, that something needs you.",
        position=4,
    ),
)
