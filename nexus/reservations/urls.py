"""What the sidebar, the help and errors on pages say of reservations."""

from __future__ import annotations

from nexus.core.contributions import Page

PAGES = (
    Page(
        "files_reservation_changelist",
        title="Reservations",
        icon="edit_document",
        section="Work",
        words={
            "files_list": "the page Reservations",
            "files_who": "the page Reservations",
            "files_end": "End the reservation on its page",
        },
        about="Who has reserved which files, until when.",
        position=4,
        by_workspace=True,
    ),
)
