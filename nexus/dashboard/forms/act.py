"""What is typed for an action."""

from __future__ import annotations

from typing import Any

from django import forms

from coordination.models import Agent
from nexus.core.contributions import Action
from nexus.web.forms import KnownField, OperationForm

OFFERED = 500  # agents to choose from


class ActForm(OperationForm):
    """A field for each parameter that the action asks for."""

    def __init__(self, action: Action, data: Any) -> None:
        super().__init__(data)
        for name, label in action.asks.items():
            field: forms.CharField
            if name == "agent_id":
                field = KnownField(label=label)
                field.offer(name, Agent.objects.order_by("agent_id").values_list("agent_id", flat=True)[:OFFERED])
            else:
                field = forms.CharField(label=label, required=False)
            field.required = name in action.needed
            self.fields[name] = field

    def field_of(self, name: str) -> str:
        return name if name in self.fields else f"{name}_id"  # of what is unknown, an error names the kind

    def given(self) -> dict[str, Any]:
        """What was typed, by parameter."""
        return {name: value for name, value in self.cleaned_data.items() if value}
