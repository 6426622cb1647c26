"""What is typed about handoffs."""

from __future__ import annotations

from django import forms

from dashboard.forms.base import OperationForm


class CancelForm(OperationForm):
    reason = forms.CharField(required=False, label="Reason (optional)")
