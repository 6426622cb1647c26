"""What is typed about handoffs."""

from __future__ import annotations

from django import forms

from nexus.web.forms import OperationForm


class CancelForm(OperationForm):
    reason = forms.CharField(required=False, label="Reason (optional)")
