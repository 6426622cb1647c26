"""Forms and filters of the pages of reservations."""

from __future__ import annotations

from django import forms

from coordination.forms import WorkspaceFilters
from nexus.web.forms import OperationForm, choice_field, number_field, words_field


class EndForm(OperationForm):
    reason = forms.CharField(required=False, label="Reason (optional), sent to its holder")


class FilesFilters(WorkspaceFilters):
    state = choice_field(label="State", choices=[("held", "Held"), ("ended", "Ended")])
    q = words_field("Part of a path, a reason or an agent")
    page = number_field()
    preset = {"state": "held"}
