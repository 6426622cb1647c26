"""Forms of the webhook pages."""

from __future__ import annotations

from typing import Any

from django import forms

from coordination.models import Agent, Workspace
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.web.forms import OFFERED, SUGGESTED, KnownField, NamesField, OperationForm
from nexus.web.templatetags.nexus import plain


class WebhookForm(OperationForm):
    """The URL of a webhook, and the events to send to it. The operation checks the rules."""

    url = forms.CharField(
        label="Address",
        widget=forms.URLInput(attrs={"placeholder": "https://example.com/nexus", "autocomplete": "off"}),
    )
    agent_id = KnownField(label="Only mail and handoffs of; none: every event")
    project_root = forms.ChoiceField(required=False, label="Workspace")
    types = NamesField(
        required=False,
        label="Event types, separated by commas; none: all",
        widget=forms.TextInput(attrs={"placeholder": "message.created, handoff.created", "autocomplete": "off"}),
    )
    allow_private = forms.BooleanField(required=False, label="The address may be private or on this machine")

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        agents = Agent.objects.exclude(pk=OPERATOR_AGENT).order_by("agent_id").values_list("agent_id", flat=True)
        workspaces = Workspace.objects.order_by("-last_seen_at")[:OFFERED]
        known, where = self.fields["agent_id"], self.fields["project_root"]
        assert isinstance(known, KnownField) and isinstance(where, forms.ChoiceField)
        known.offer("agent_id", agents[:SUGGESTED])
        where.choices = [("", "All workspaces"), *((row.root_realpath, plain(row)) for row in workspaces)]

    def given(self) -> dict[str, Any]:
        """Return the operation's parameters; empty fields are left out."""
        return {name: value for name, value in self.cleaned_data.items() if value}


class WebhookActForm(forms.Form):
    what = forms.ChoiceField(choices=[(what, what) for what in ("redeliver", "remove")])
