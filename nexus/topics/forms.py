"""Forms of the pages of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from django import forms

from nexus.web.forms import (
    Filters,
    LinesField,
    NumberField,
    OperationForm,
    hidden_field,
    name_of,
    number_field,
    words_field,
)

TYPES = ("message", "question", "answer")


class SayForm(OperationForm):
    """A message to a topic. A form that is sent twice is one message, because of `client_message_id`; with another
    text it is another message."""

    content_markdown = LinesField(rows=4, label="Message (Markdown)", required=False)
    message_type = forms.ChoiceField(label="Kind", choices=[(name, name) for name in TYPES])
    reply_to = forms.CharField(required=False, widget=forms.HiddenInput)
    client_message_id = forms.CharField(widget=forms.HiddenInput)
    seen = NumberField(required=False, widget=forms.HiddenInput)

    def __init__(self, data: Mapping[str, Any] | None = None, *, initial: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, initial={"client_message_id": uuid4().hex, **(initial or {})}, auto_id="say-%s")

    def field_of(self, name: str) -> str:
        """Return the text's field for every error: it is the only field that a person fills in."""
        return "content_markdown" if name == "message" else name

    def message(self) -> dict[str, Any]:
        """Return the message as the operation takes it."""
        given = {name: value for name, value in self.cleaned_data.items() if name != "seen"}
        return {**given, "client_message_id": name_of(given), "reply_to": given["reply_to"] or None}


class TopicFilters(Filters):
    q = words_field("Find in this topic")
    at = number_field()
    before = number_field()
    after = number_field()
    answer = number_field()
    whole = number_field()
    format = hidden_field()
