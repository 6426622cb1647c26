"""Forms and filters of the pool's pages."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

from django import forms
from django.http import QueryDict

from nexus.control.errors import ControlCode
from nexus.control.permissions.rules import DEFAULT
from nexus.web.forms import (
    Filters,
    LinesField,
    NumberField,
    OperationForm,
    choice_field,
    number_field,
    offer,
)
from nexus.web.templatetags.nexus import plain

FIELDS = {  # by the rule that a refusal names
    "ceiling": "preset",
    "yolo": "preset",
    "cwd": "cwd",
    "write_paths": "allowed_write_paths",
    "sandbox": "model",
}


class NewPoolAgentForm(OperationForm):
    """An agent to create. The form proposes the name, so that submitting it twice creates one agent."""

    agent_id = forms.CharField(
        label="Name (with a leading dot, it ends with the server)",
        strip=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    parent_agent_id = forms.ChoiceField(required=False, label="Below")
    cwd = forms.CharField(
        required=False,
        label="Directory, by its absolute path; without one it is",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    worktree = forms.NullBooleanField(
        label="Works there in",
        widget=forms.Select(
            choices=(
                ("", "a clone of its own, if it can"),
                ("true", "a clone of its own, or is not created"),
                ("false", "the directory itself"),
            )
        ),
    )
    model = forms.ChoiceField(required=False, label="Runner")
    preset = forms.ChoiceField(label="Permissions", widget=forms.RadioSelect)
    allowed_write_paths = LinesField(
        rows=3,
        required=False,
        label="Writes at and below, one path a line; relative ones lie in its directory",
        help_text="A worker writes nowhere.",
    )
    disable_tools = forms.MultipleChoiceField(
        required=False, label="Goes without these tools", widget=forms.CheckboxSelectMultiple
    )
    initial_message = LinesField(rows=4, required=False, label="First message, which begins a turn (Markdown)")
    wake_on = forms.MultipleChoiceField(
        required=False, label="Begins a turn by itself for", widget=forms.CheckboxSelectMultiple
    )
    wake_tokens = NumberField(
        required=False,
        label="Tokens that such turns take in a day at most (0: no end); without a number it is",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off"}),
    )

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        initial: Mapping[str, Any] = {},
        offered: Mapping[str, Mapping[str, str]] = {},
        usual: Mapping[str, str] = {},
        about: Mapping[str, str] = {},
    ) -> None:
        """By field: the choices that it offers, what it has where it is left empty, and what to know about it."""
        super().__init__(data, initial={"agent_id": secrets.token_hex(4), "preset": DEFAULT, **initial})
        for name, choices in offered.items():
            offer(self.fields[name], list(choices.items()))
        for name, value in usual.items():
            self.fields[name].widget.attrs["placeholder"] = value
        for name, text in about.items():
            self.fields[name].help_text = text

    def refused(self, error: Mapping[str, Any]) -> bool:
        """Show the error of a rule at the field that it is about, too."""
        field = FIELDS.get(error.get("details", {}).get("rule", ""))
        if error["code"] == ControlCode.WORKTREE_REFUSED:
            field = "worktree"
        return super().refused({**error, "details": {"field": field}} if field else error)

    def arguments(self) -> dict[str, Any]:
        """Return the operation's parameters; empty fields are left out."""
        paths = [line.strip() for line in self.cleaned_data["allowed_write_paths"].split("\n") if line.strip()]
        said = {**self.cleaned_data, "allowed_write_paths": paths}
        return {name: value for name, value in said.items() if value not in ("", [], None)}


class WorkForm(OperationForm):
    """A message to an agent. With `request_id`, submitting the form twice makes one turn."""

    content = LinesField(rows=4, label="Message (Markdown)")
    request_id = forms.CharField(widget=forms.HiddenInput)

    def __init__(self, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial={"request_id": uuid4().hex}, auto_id="work-%s")


class AnswerForm(OperationForm):
    """An answer to a request for permission: of "allow always", for whom its rule holds."""

    verdict = forms.ChoiceField(
        choices=[(name, name) for name in ("pool_allow", "pool_allow_always", "pool_refuse")], widget=forms.HiddenInput
    )
    scope = forms.ChoiceField(required=False, widget=forms.RadioSelect, label="Write the rule")

    def __init__(self, data: Mapping[str, Any] | None, choices: list[tuple[str, str]]) -> None:
        super().__init__(data, initial={"scope": choices[0][0]})
        offer(self.fields["scope"], choices)

    def arguments(self) -> dict[str, Any]:
        """Return the operation's parameters."""
        always = self.cleaned_data["verdict"] == "pool_allow_always"
        return {"scope": self.cleaned_data["scope"] or "agent"} if always else {}


class CommentForm(OperationForm):
    """A comment on a worktree's diff. A path is given as JSON, since a form changes line ends in values."""

    seen = forms.CharField(required=False, widget=forms.HiddenInput)
    text = LinesField(rows=3, label="Comment")
    path = forms.ChoiceField(required=False, label="About")
    line = NumberField(required=False, label="From line")
    last_line = NumberField(required=False, label="To line")
    side = forms.ChoiceField(
        required=False, label="Counted", choices=[("new", "after the change"), ("old", "before the change")]
    )

    def __init__(self, data: QueryDict | None, files: Sequence[str], seen: str) -> None:
        super().__init__(data, initial={"seen": seen})
        offer(self.fields["path"], [("", "all of it"), *((json.dumps(name), plain(name)) for name in files)])

    def arguments(self) -> dict[str, Any]:
        """Return the operation's parameters."""
        of = self.cleaned_data
        place = {"line": of["line"], "last_line": of["last_line"], "side": of["side"] or None} if of["line"] else {}
        return {"text": of["text"], "seen": of["seen"] or None, "path": json.loads(of["path"] or "null"), **place}


class PathsField(forms.MultipleChoiceField):
    """Paths, each as JSON, since a form changes line ends in values."""

    def clean(self, value: Any) -> list[str]:
        try:
            return [str(json.loads(path)) for path in value or ()]
        except ValueError:
            raise forms.ValidationError("Name paths as JSON.") from None


class ApproveForm(forms.Form):
    """What was seen, and is approved; and what was read elsewhere."""

    seen = forms.CharField()
    unseen = PathsField(required=False)


class SpendingFilters(Filters):
    days = choice_field(label="Spent within", choices=[("1", "a day"), ("7", "7 days"), ("30", "30 days")])
    preset = {"days": "1"}


class TranscriptFilters(Filters):
    before = number_field()
    after = number_field()
    whole = number_field()
