"""What is typed about the hub itself: settings, retention, reset."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from nexus.core.config import written
from nexus.web.forms import NumberField, OperationForm


class SettingField(forms.CharField):
    """A setting in its own type. Its bounds are the operation's; the browser is told of them."""

    def __init__(self, setting: Mapping[str, Any]) -> None:
        self.kind = type(setting["default"])
        described = {"aria-describedby": f"about-{setting['name']}"}
        choices = setting["choices"] or (["true", "false"] if self.kind is bool else None)
        if choices:
            widget: forms.Widget = forms.Select(attrs=described, choices=[(choice, choice) for choice in choices])
        elif self.kind is str:
            widget = forms.TextInput(attrs=described)
        else:
            bounds = {name[:3]: setting[name] for name in ("minimum", "maximum") if setting[name] is not None}
            widget = forms.NumberInput(attrs={**described, **bounds, "step": 1, "required": True})
        shown = written(setting["value"])
        super().__init__(required=False, widget=widget, initial=shown, show_hidden_initial=True, label=setting["name"])

    def clean(self, value: Any) -> Any:
        if value is None:  # not among what was sent
            return None
        text = super().clean(value)
        if self.kind is bool:
            return text == "true"
        if self.kind is int:
            if not re.fullmatch("[+-]?[0-9]{1,18}", text):
                raise ValidationError("Use a whole number.")
            return int(text)
        return text


class SettingsForm(OperationForm):
    """The settings that may be changed here; `default` names one that goes back to its default. What a person leaves as
    it was shown is not sent on, so that what others change meanwhile stays."""

    def __init__(self, listed: Sequence[Mapping[str, Any]], data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, auto_id="set-%s")
        for setting in listed:
            if not setting["pinned"] and setting["applies"] == "at once":
                self.fields[setting["name"]] = SettingField(setting)

    def changes(self) -> dict[str, Any]:
        """What was changed, by name, as the operation takes it: null goes back to the default."""
        if "default" in self.data:
            return {self.data["default"]: None}
        return {name: self.cleaned_data[name] for name in self.changed_data if name in self.data}


class RetentionForm(forms.Form):
    """A dry run, or a step of a run: what the steps before it deleted."""

    what = forms.ChoiceField(choices=[("dry", "dry"), ("run", "run")])
    deleted = NumberField(required=False)


class ResetForm(OperationForm):
    keep_agents = forms.BooleanField(required=False, initial=True, label="Keep agents and their keys")
    confirm = forms.CharField(
        required=False,
        label="Type reset to confirm",
        widget=forms.TextInput(attrs={"data-typed": "reset", "autocomplete": "off"}),
    )
