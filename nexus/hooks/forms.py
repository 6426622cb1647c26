"""Forms of the pages of webhooks and notices."""

from __future__ import annotations

from typing import Any

from django import forms

from coordination.models import Agent, Workspace
from nexus.core.apps import kinds_of_needs
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.web.forms import OFFERED, SUGGESTED, KnownField, NamesField, OperationForm
from nexus.web.templatetags.nexus import plain


def workspace_choices() -> list[tuple[str, str]]:
    """Return the workspaces to choose from, by root."""
    latest = Workspace.objects.order_by("-last_seen_at")[:OFFERED]
    return [("", "All workspaces"), *((row.root_realpath, plain(row)) for row in latest)]


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
        known, where = self.fields["agent_id"], self.fields["project_root"]
        assert isinstance(known, KnownField) and isinstance(where, forms.ChoiceField)
        known.offer("agent_id", agents[:SUGGESTED])
        where.choices = workspace_choices()


class NoticeForm(OperationForm):
    """The address of a service for notices."""

    url = forms.CharField(
        label="Address of the service",
        widget=forms.TextInput(attrs={"placeholder": "ntfys://ntfy.sh/my-secret-topic", "autocomplete": "off"}),
    )
    kinds = forms.MultipleChoiceField(required=False, label="Kinds of needs; none chosen: all")
    project_root = forms.ChoiceField(required=False, label="Workspace")
    quiet = forms.CharField(
        required=False,
        label="Quiet hours",
        widget=forms.TextInput(attrs={"placeholder": "22:00-07:00", "autocomplete": "off"}),
    )
    timezone = forms.CharField(
        required=False,
        label="Their time zone; none: the hub's",
        widget=forms.TextInput(attrs={"placeholder": "Europe/Berlin", "autocomplete": "off"}),
    )
    with_text = forms.BooleanField(required=False, label="Send agents' words, too")
    with_answers = forms.BooleanField(required=False, label="Send links that answer a question without a login")
    allow_private = forms.BooleanField(required=False, label="The address may be private or on this machine")

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        kinds, where = self.fields["kinds"], self.fields["project_root"]
        assert isinstance(kinds, forms.MultipleChoiceField) and isinstance(where, forms.ChoiceField)
        kinds.choices = [(kind.name, kind.title) for kind in kinds_of_needs()]
        where.choices = workspace_choices()
