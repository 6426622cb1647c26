"""Forms of the Retention page."""

from __future__ import annotations

from django import forms

from nexus.web.forms import NumberField, OperationForm


class RetentionForm(forms.Form):
    """A dry run, or a step of a run with the number of rows that earlier steps deleted."""

    what = forms.ChoiceField(choices=[("dry", "dry"), ("run", "run")])
    deleted = NumberField(required=False)


class ResetForm(OperationForm):
    keep_agents = forms.BooleanField(required=False, initial=True, label="Keep agents and their keys")
    confirm = forms.CharField(
        required=False,
        label="Type reset to confirm",
        widget=forms.TextInput(attrs={"data-typed": "reset", "autocomplete": "off"}),
    )
