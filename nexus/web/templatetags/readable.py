"""JSON that agents attached, laid out for reading: names beside values, lists as lists, no braces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import takewhile
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from nexus.web.templatetags.nexus import MAX_PLAIN, plain

register = template.Library()

DEEPEST = 6  # levels of nesting
MOST = 300  # values on one page
OMITTED = format_html('<span class="nx-quiet">{}</span>', "… and more")


@register.filter
def readable(value: Any) -> SafeString:
    """Render a JSON value, or the text of one, as HTML; a text that is not a JSON object or list stays as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return format_html("<div x-ignore hx-disable>{}</div>", _Page().shown(value, DEEPEST))


class _Page:
    """The layout of one value, with the space that is left."""

    def __init__(self) -> None:
        self.values = MOST
        self.letters = MAX_PLAIN

    def shown(self, value: Any, levels: int) -> SafeString:
        self.values -= 1
        if value is None or value in ({}, []):
            return format_html("{}", "–")
        if isinstance(value, dict | list) and (self.values < 0 or not levels):
            return OMITTED
        if isinstance(value, dict):
            rows = [(plain(name)[:200], self.shown(each, levels - 1)) for name, each in self.some(value.items())]
            rows += [("", OMITTED)] if len(rows) < len(value) else []
            return format_html('<dl class="nx-facts">{}</dl>', format_html_join("", "<dt>{}</dt><dd>{}</dd>", rows))
        if isinstance(value, list):
            items = [(self.shown(each, levels - 1),) for each in self.some(value)]
            items += [(OMITTED,)] if len(items) < len(value) else []
            return format_html('<ul class="nx-list">{}</ul>', format_html_join("", "<li>{}</li>", items))
        text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else plain(str(value)[: self.letters])
        self.letters -= len(text)
        return format_html('<bdi class="nx-lines">{}</bdi>', text)

    def some(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield as many values as fit."""
        return takewhile(lambda _: self.values > 0, values)
