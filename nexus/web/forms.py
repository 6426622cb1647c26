"""The parts of the dashboard's forms. A form checks the shape of the input and passes it to an operation.

The operation has the rules: its errors come back to the field that they name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from nexus.core.operations.parameters import whole_number
from nexus.core.operations.validation import refuse_constant


def name_of(message: Mapping[str, Any]) -> str:
    """Return the id by which an operation recognizes a submission: the same form with the same content is the same call
    again. With other content, as after a step back in the browser, it is another call."""
    return hashlib.sha256(json.dumps(message, sort_keys=True).encode()).hexdigest()


class LinesField(forms.CharField):
    """Text of several lines with LF line ends; browsers send CR LF."""

    widget = forms.Textarea

    def __init__(self, *, rows: int = 8, **options: Any) -> None:
        super().__init__(strip=False, widget=forms.Textarea(attrs={"rows": rows}), **options)

    def to_python(self, value: Any) -> str:
        return re.sub("\r\n?", "\n", super().to_python(value) or "")


class JSONTextField(forms.CharField):
    """Any JSON value; empty is null."""

    def __init__(self, **options: Any) -> None:
        widget = forms.Textarea(attrs={"rows": 3, "spellcheck": "false"})
        super().__init__(widget=widget, required=False, **options)

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        try:
            return json.loads(text, parse_constant=refuse_constant) if text else None
        except (ValueError, RecursionError):
            raise ValidationError('This is no JSON. Write it like {"team": "parser"}, or leave it empty.') from None


class NamesField(forms.CharField):
    """Names, separated by commas."""

    def to_python(self, value: Any) -> Any:
        return [name.strip() for name in (super().to_python(value) or "").split(",") if name.strip()]


class NumberField(forms.CharField):
    """A whole number from 0 on, in ASCII digits; empty is None."""

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        number = whole_number(text)
        if text and number is None:
            raise ValidationError("Use a whole number.")
        return number


SUGGESTED = 500  # names in one datalist


class KnownField(forms.CharField):
    """A name; the browser suggests the known ones, and accepts others."""

    def __init__(self, **options: Any) -> None:
        super().__init__(strip=False, required=False, **options)
        self.known: list[str] = []

    def offer(self, name: str, known: Iterable[str]) -> None:
        """Suggest the known names from the datalist `<name>-known`, which the template writes."""
        self.known = list(known)
        self.widget.attrs["list"] = f"{name}-known"


class OperationForm(forms.Form):
    """A form whose values are an operation's parameters."""

    def field_of(self, name: str) -> str:
        """Return the field for a name in an error's details; a parameter's field has its name."""
        return name

    def refused(self, error: Mapping[str, Any]) -> bool:
        """Show an operation's error at the field it is about; False if it is about none of them."""
        details = error.get("details", {})
        fields = (self.field_of(name) for name in [str(details.get("field", "")), *details])
        field = next((field for field in fields if field in self.fields), None)
        if field is not None:
            message = re.sub("^[a-z_.]+ ", "It ", error["message"])  # drop the parameter's name: the field has a label
            self.add_error(field, f"{message} ({error['code']})")
        return field is not None
