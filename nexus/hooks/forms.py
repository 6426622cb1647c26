"""The form that changes an address for notices."""

from __future__ import annotations

from functools import partial
from typing import Any

from django import forms

from nexus.core.apps import kinds_of_needs
from nexus.hooks.administration import NoticeUpdate, notice_row
from nexus.hooks.models import NoticeAddress
from nexus.web.forms import ParametersForm

ASKS = {
    "kinds": partial(
        forms.MultipleChoiceField,
        choices=lambda: [(kind.name, kind.title) for kind in kinds_of_needs()],
        help_text="None chosen: every kind.",
    )
}


class NoticeForm(ParametersForm):
    """What an address gets, and when. The address itself is not shown; left empty, it stays."""

    def __init__(self, data: Any, row: NoticeAddress | None) -> None:
        super().__init__(NoticeUpdate, data, only=[*NoticeUpdate.model_fields.keys() - {"notice_id"}], asks=ASKS)
        self.order_fields(["url", "kinds", "quiet", "timezone"])
        self.fields["url"].help_text = "Left empty, it stays as it is."
        self.initial = dict(notice_row(row)) if row else {}

    def arguments(self) -> dict[str, Any]:
        given = {name: value if isinstance(value, bool) else value or None for name, value in self.cleaned_data.items()}
        return {name: value for name, value in given.items() if name != "url" or value}
