"""The parts of the dashboard's forms. A form checks the shape of the input and passes it to an operation.

The operation has the rules: its errors come back to the field that they name. Filters come from the URL: a malformed
value filters nothing, and the page says so beside the field.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict

from nexus.core.operations.parameters import Params, parameters_schema, whole_number
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

    def arguments(self) -> dict[str, Any]:
        """Return the operation's parameters; empty fields are left out."""
        return {name: value for name, value in self.cleaned_data.items() if value}

    def refused(self, error: Mapping[str, Any]) -> bool:
        """Show an operation's error at the field it is about; False if it is about none of them."""
        details = error.get("details", {})
        fields = (self.field_of(name) for name in [str(details.get("field", "")), *details])
        field = next((field for field in fields if field in self.fields), None)
        if field is not None:
            message = re.sub("^[a-z_.]+ ", "It ", error["message"])  # drop the parameter's name: the field has a label
            self.add_error(field, f"{message} ({error['code']})")
        return field is not None


# Fields of parameters that mean the same in every operation, by name. Apps add theirs.
PARAMETERS: dict[str, Callable[[], forms.Field]] = {
    "url": partial(forms.CharField, label="Address", widget=forms.TextInput(attrs={"autocomplete": "off"})),
    **dict.fromkeys(("words", "reasons", "body"), partial(LinesField, rows=4)),
    "token": partial(forms.CharField, widget=forms.PasswordInput(attrs={"autocomplete": "off"})),
}
KINDS: dict[str, Callable[[], forms.Field]] = {
    "string": forms.CharField,
    "boolean": forms.BooleanField,
    "integer": NumberField,
    "array": NamesField,
}


class ParametersForm(OperationForm):
    """A field for each parameter of an operation, or for `only` some; `asks` has those that are made in another way."""

    def __init__(
        self,
        params: type[Params],
        data: Any = None,
        *,
        only: Iterable[str] | None = None,
        asks: Mapping[str, Callable[[], forms.Field]] = {},
    ) -> None:
        super().__init__(data)
        schema = parameters_schema(params)
        for name in schema["properties"] if only is None else only:
            part = schema["properties"][name]
            field = (asks.get(name) or PARAMETERS.get(name) or partial(_field, part))()
            field.required = name in schema.get("required", ())
            field.label = field.label or name.replace("_", " ").capitalize()
            field.help_text = field.help_text or part.get("description", "")
            if isinstance(field, NamesField):
                field.help_text += " Separate them by commas."
            self.fields[name] = field


def _field(schema: Mapping[str, Any]) -> forms.Field:
    """Return the field for a parameter by its JSON schema."""
    if known := schema.get("enum"):
        return forms.ChoiceField(choices=[("", "–"), *((value, value) for value in known)])
    return KINDS.get(schema.get("type", ""), JSONTextField)()


OFFERED = 200  # workspaces to choose from, the latest active ones
LONGEST, MOST = 200, 12  # letters, and words, of a search
YEARS = range(2000, 2101)  # that a URL may name


def choice_field(**options: object) -> forms.ChoiceField:
    """Return a choice that submits its form on change."""
    return forms.ChoiceField(required=False, widget=forms.Select(attrs={"data-submit": True}), **options)  # type: ignore[arg-type]


def hidden_field() -> forms.CharField:
    return forms.CharField(required=False, strip=False, widget=forms.HiddenInput)


def number_field() -> NumberField:
    return NumberField(required=False, widget=forms.HiddenInput)


def line_field(placeholder: str = "", **options: str) -> forms.CharField:
    attrs = {"placeholder": placeholder} if placeholder else {}
    return forms.CharField(required=False, widget=forms.TextInput(attrs=attrs), **options)  # type: ignore[arg-type]


class WordsField(forms.CharField):
    """Words to search for."""

    def to_python(self, value: Any) -> str:
        return searched(super().to_python(value) or "")


def searched(text: str) -> str:
    """Return the part of a text that is searched for: databases refuse patterns and conditions that are too long."""
    return " ".join(text.replace("\x00", "")[:LONGEST].split()[:MOST])


def words_field(label: str = "Words", placeholder: str = "", **attrs: object) -> forms.CharField:
    widget = forms.TextInput(attrs={"type": "search", **({"placeholder": placeholder} if placeholder else {}), **attrs})
    return WordsField(required=False, label=label, widget=widget)


class Filters(forms.Form):
    """Base of a page's filters; all are optional."""

    preset: ClassVar[Mapping[str, str]] = {}  # values of filters that the URL does not name

    def __init__(self, data: QueryDict) -> None:
        given = data.copy()
        for name, value in self.preset.items():
            given.setdefault(name, value)
        super().__init__(given)

    def text(self, name: str) -> str:
        """Return a filter's value; empty if it is missing or malformed."""
        self.is_valid()
        return self.cleaned_data.get(name) or ""

    def number(self, name: str) -> int | None:
        """Return a filter's value; None if it is missing or malformed."""
        self.is_valid()
        return self.cleaned_data.get(name)

    def query(self, *without: str) -> str:
        """Return the URL's query without the named parameters."""
        assert isinstance(self.data, QueryDict)
        query = self.data.copy()
        for name in without:
            query.pop(name, None)
        return query.urlencode()


def offer(field: forms.Field, choices: list[Any]) -> None:
    assert isinstance(field, forms.ChoiceField)
    field.choices = choices


class MomentField(forms.CharField):
    """A time in the format of `iso`; without a zone it is UTC."""

    widget = forms.HiddenInput

    def to_python(self, value: object) -> datetime | None:  # type: ignore[override]
        text = super().to_python(value)
        try:
            moment = datetime.fromisoformat(text) if text else None
        except ValueError:
            moment = datetime.min
        if moment is None:
            return None
        if moment.year not in YEARS:
            raise forms.ValidationError("Use a time such as 2026-01-31T12:00:00Z.")
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
