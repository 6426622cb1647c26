"""The pages of reservations, below /admin/."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.reservations import views

PAGES = (
    Page(
        "files",
        "files/",
        views.files,
        "Reservations",
        "edit_document",
        "More",
        words={
            "files_list": "the page Reservations",
            "files_who": "the page Reservations",
            "files_end": "End it on its page",
        },
        about="Who has reserved which files, until when.",
        position=4,
        by_workspace=True,
    ),
    Page("reservation", "files/<str:reservation_id>/", views.reservation),
)
