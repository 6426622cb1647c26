"""Forms of the pages of plans and tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from handoffs.lifecycle import serialize_verifier
from nexus.core.operations.parameters import whole_number
from nexus.planning.models import TaskStatus
from nexus.web.forms import KnownField, LinesField, NumberField, OperationForm


class NumbersField(forms.CharField):
    """Whole numbers, separated by commas or spaces, without duplicates."""

    def to_python(self, value: Any) -> Any:
        words = re.split(r"[,\s]+", super().to_python(value) or "")
        numbers = [whole_number(word) for word in words if word]
        if None in numbers:
            raise ValidationError("Use the numbers of tasks, separated by commas, such as 1, 3.")
        return list(dict.fromkeys(numbers))

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class DecideForm(OperationForm):
    summary = LinesField(rows=6, label="Decision and its reasons (Markdown)")


class CommentForm(OperationForm):
    text = LinesField(rows=3, label="A comment for the agent that holds the plan")


class SendForm(OperationForm):
    """To whom comments are sent; empty: to the agent that holds the plan."""

    agent_id = KnownField(label="To which agent, if not to the one that holds the plan")


class TaskForm(OperationForm):
    """A task. Fields that the operator did not change are not sent, so that they do not overwrite what others change
    meanwhile."""

    title = forms.CharField(required=False, strip=False, show_hidden_initial=True)
    context = LinesField(
        rows=6, label="Context: why, and what is known (Markdown)", required=False, show_hidden_initial=True
    )
    acceptance = LinesField(rows=3, label="Acceptance: when it is done", required=False, show_hidden_initial=True)
    approach = LinesField(rows=3, required=False, show_hidden_initial=True)
    risk = LinesField(rows=2, required=False, show_hidden_initial=True)
    deps = NumbersField(
        required=False,
        label="Waits for the tasks",
        show_hidden_initial=True,
        widget=forms.TextInput(attrs={"placeholder": "1, 3", "autocomplete": "off"}),
    )
    owner = KnownField(show_hidden_initial=True)
    plan_issue = NumberField(required=False, label="From issue number", show_hidden_initial=True)
    acceptance_criteria = LinesField(
        rows=3,
        required=False,
        show_hidden_initial=True,
        label="Checked before it counts, one a line: check:tests, file:PATH, unchanged:PATH, or a sentence",
    )
    verifier = forms.CharField(
        required=False,
        show_hidden_initial=True,
        label="Who accepts the result",
        widget=forms.TextInput(attrs={"placeholder": "creator, operator, role:reviewer, agent:ana"}),
    )
    seen = NumberField(required=False, widget=forms.HiddenInput)

    OPTIONAL = ("acceptance", "approach", "risk", "owner", "acceptance_criteria", "verifier")

    def __init__(self, data: Any = None, *, initial: dict[str, Any] | None = None, agents: Iterable[str] = ()) -> None:
        super().__init__(data, initial=initial)
        owner = self.fields["owner"]
        assert isinstance(owner, KnownField)
        owner.offer("owner", agents)

    def given(self) -> dict[str, Any]:
        """Return the values as the operations take them; an empty line is None."""
        typed = {name: value for name, value in self.cleaned_data.items() if name != "seen"}
        typed["acceptance_criteria"] = [
            line.strip() for line in typed["acceptance_criteria"].split("\n") if line.strip()
        ]
        typed["verifier"] = serialize_verifier(typed["verifier"])
        return {name: value or None if name in self.OPTIONAL else value for name, value in typed.items()}

    def changes(self) -> dict[str, Any]:
        """Return the changed values."""
        return {name: value for name, value in self.given().items() if name in self.changed_data}


class StatusForm(forms.Form):
    status = forms.ChoiceField(choices=TaskStatus.choices)
