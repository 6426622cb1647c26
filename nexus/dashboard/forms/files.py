"""What is typed about reservations of files."""

from __future__ import annotations

from django import forms

from nexus.web.forms import OperationForm


class EndForm(OperationForm):
    reason = forms.CharField(required=False, label="Reason (optional), told to its holder")
