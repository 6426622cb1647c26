"""Filters of the pages of mail."""

from __future__ import annotations

from django import forms
from django.http import QueryDict

from coordination import switcher
from coordination.forms import WorkspaceFilters
from coordination.models import Channel
from nexus.web.forms import choice_field, hidden_field, line_field, offer, words_field
from nexus.web.templatetags.nexus import plain

STATUSES = {
    "": "All mail",
    "unread": "Unread",
    "delivered": "In flight",
    "read": "Read",
    "parked": "Dead letters",
    "nobody": "Reached nobody",
}


class MailFilters(WorkspaceFilters):
    channel = choice_field()
    agent = line_field("sent or received by")
    q = words_field(placeholder="subject or body")
    status = forms.ChoiceField(required=False, choices=list(STATUSES.items()), widget=forms.HiddenInput)
    before = hidden_field()
    m = hidden_field()
    alone = forms.BooleanField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: QueryDict) -> None:
        super().__init__(data)
        # before the form is checked, because its choices are part of the check
        workspace = switcher.find_workspace(data.get("workspace", ""))
        channels = Channel.objects.filter(workspace=workspace).order_by("name")[:100] if workspace else []
        offer(self.fields["channel"], [("", "All channels"), *((row.pk, plain(row)) for row in channels)])
