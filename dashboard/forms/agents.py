"""What is typed about agents."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from coordination.models import Agent
from coordination.routing import capability_set
from core.operations.registry import TOOLSETS
from core.operations.toolsets import default
from dashboard.forms.base import JSONTextField, NamesField, OperationForm


class ProfileForm(OperationForm):
    role = forms.CharField(required=False, widget=forms.TextInput(attrs={"placeholder": "reviewer"}))
    capabilities = NamesField(
        required=False,
        label="Capabilities, separated by commas",
        widget=forms.TextInput(attrs={"placeholder": "python, review"}),
    )
    toolsets = NamesField(required=False)
    metadata = JSONTextField(label="Metadata (JSON)")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        field = self.fields["toolsets"]
        field.label = f"Toolsets, separated by commas; of {', '.join(TOOLSETS)}, or all"
        field.widget.attrs["placeholder"] = ", ".join(each.name for each in default())

    def profile(self) -> dict[str, Any]:
        """The profile as the operations take it; an empty role is none."""
        return {**self.cleaned_data, "role": self.cleaned_data["role"] or None}


class NewAgentForm(ProfileForm):
    agent_id = forms.CharField(
        label="Agent id", widget=forms.TextInput(attrs={"autofocus": True, "placeholder": "reviewer-1"})
    )
    field_order = ("agent_id",)


def profile_of(agent: Agent) -> dict[str, str]:
    """An agent's profile as `ProfileForm` shows it."""
    return {
        "role": agent.role or "",
        "capabilities": ", ".join(sorted(capability_set(agent.capabilities))),
        "toolsets": ", ".join(agent.toolsets or ()),
        "metadata": "" if agent.metadata is None else json.dumps(agent.metadata, ensure_ascii=False),
    }


class KeyForm(forms.Form):
    what = forms.ChoiceField(choices=[(what, what) for what in ("issue", "activate", "deactivate")])


class SessionForm(forms.Form):
    session = forms.CharField()
