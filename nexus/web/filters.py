"""Filters of pages, from the URL. A malformed value filters nothing, and the page says so beside the field."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar

from django import forms
from django.http import QueryDict

from nexus.web.forms import NumberField

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
