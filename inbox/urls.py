"""The pages of mail, below /admin/."""

from __future__ import annotations

from inbox import views
from nexus.core.contributions import Page

PAGES = (
    Page(
        "mail",
        "mail/",
        views.mail,
        "Inbox",
        "inbox",
        "Now",
        about="Every message, and where it stands.",
        position=3,
        by_workspace=True,
    ),
    Page("message", "mail/<str:message_id>/", views.message),
)
