"""What is typed about plans and tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from coordination.forms import PlaceFilters
from nexus.core.operations.parameters import whole_number
from nexus.planning.models import TaskStatus
from nexus.web.filters import number_field, words_field
from nexus.web.forms import KnownField, LinesField, NumberField, OperationForm


class NumbersField(forms.CharField):
    """Whole numbers, separated by commas or spaces; each once."""

    def to_python(self, value: Any) -> Any:
        words = re.split(r"[,\s]+", super().to_python(value) or "")
        numbers = [whole_number(word) for word in words if word]
        if None in numbers:
            raise ValidationError("Use the numbers of tasks, separated by commas, such as 1, 3.")
        return list(dict.fromkeys(numbers))

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(map(str, value)) if isinstance(value, list) else value


class StartForm(OperationForm):
    """A plan to begin. `seen` is what the page showed: who sends an old form archives no plan unseen."""

    topic = forms.CharField(required=False, strip=False, widget=forms.TextInput(attrs={"autofocus": True}))
    issues = LinesField(rows=6, label="Issues to decide, one a line", required=False)
    research_summary = LinesField(rows=8, label="What was found out (Markdown)", required=False)
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def given(self) -> dict[str, Any]:
        """What was typed, as the operation takes it."""
        issues = [line.strip() for line in self.cleaned_data["issues"].split("\n") if line.strip()]
        return {**{name: self.cleaned_data[name] for name in ("topic", "research_summary")}, "issues": issues}


class IssueForm(OperationForm):
    """An issue's title. `seen` is the highest number that the page knew: a form that is sent twice adds one issue."""

    title = forms.CharField(required=False, strip=False, label="Another issue")
    seen = NumberField(required=False, widget=forms.HiddenInput)


class DecideForm(OperationForm):
    summary = LinesField(rows=6, label="Decision and its reasons (Markdown)")


class IssueChangeForm(OperationForm):
    """What is done with an issue beside deciding it."""

    action = forms.ChoiceField(choices=[(name, name) for name in ("edit", "reopen", "remove")])
    title = forms.CharField(required=False, strip=False, label="Title")


class TaskForm(OperationForm):
    """A task. What a person leaves as it was is not sent on, so that what others change meanwhile stays."""

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
    seen = NumberField(required=False, widget=forms.HiddenInput)

    OPTIONAL = ("acceptance", "approach", "risk", "owner")

    def __init__(self, data: Any = None, *, initial: dict[str, Any] | None = None, agents: Iterable[str] = ()) -> None:
        super().__init__(data, initial=initial)
        owner = self.fields["owner"]
        assert isinstance(owner, KnownField)
        owner.offer("owner", agents)

    def given(self) -> dict[str, Any]:
        """What was typed, as the operations take it; a line that is empty is none."""
        typed = {name: value for name, value in self.cleaned_data.items() if name != "seen"}
        return {name: value or None if name in self.OPTIONAL else value for name, value in typed.items()}

    def changes(self) -> dict[str, Any]:
        """What of it was changed."""
        return {name: value for name, value in self.given().items() if name in self.changed_data}


class StatusForm(forms.Form):
    status = forms.ChoiceField(choices=TaskStatus.choices)


class CycleFilters(PlaceFilters):
    q = words_field("Words of a plan, a decision or a task")
    page = number_field()
