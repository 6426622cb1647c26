"""The inbox in the sidebar: the admin's list of messages."""

from __future__ import annotations

from inbox.models import Delivery
from nexus.core.contributions import Page
from nexus.core.operations.caller import OPERATOR_AGENT

PAGES = (
    Page(
        "inbox_message_changelist",
        title="Inbox",
        icon="inbox",
        section="Now",
        about="Every message, and where it stands.",
        position=3,
        by_workspace=True,
        waits=lambda: Delivery.objects.of(OPERATOR_AGENT).unread().count(),
    ),
)
