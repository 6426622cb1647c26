"""Template filters for times, names and untrusted texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from html import escape
from itertools import takewhile, zip_longest
from typing import Any

from django import template
from django.db.models import Model
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from nexus.core.clock import iso
from nexus.core.fulltext import HIT_ENDS, HIT_STARTS, words_of
from nexus.core.quoting import visible
from nexus.web.markdown import rendered

register = template.Library()

UNDO = "undo"  # the first tag of a message that can be undone; the operation follows, then the ids
MAX_PLAIN = 200_000  # characters of a payload on a page
# Control and format characters and line separators, except line feed, tab, and the joiners that scripts and emoji need.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0001\U000e0020-\U000e007f]"
)


@register.simple_tag
def when(moment: datetime | None, style: str = "at") -> SafeString | str:
    """Render a time: in the viewer's zone with JavaScript, otherwise in UTC, with the exact UTC time on hover. `style`:
    at, ago, for or left."""
    if moment is None:
        return "–"
    at = iso(moment)  # needs no escaping, and `format_html` takes several times as long
    day, minute, exact = at[:10], at[11:16], at[11:26]
    return SafeString(f'<time datetime="{at}" title="{day} {exact} UTC" data-when="{style}">{day} {minute} UTC</time>')


@register.simple_tag
def headings(*titles: str) -> SafeString:
    """Render the headings of a table's columns."""
    cells = format_html_join("", '<th scope="col">{}</th>', ((title,) for title in titles))
    return format_html("<thead><tr>{}</tr></thead>", cells)


@register.simple_tag
def actions_on(record_admin: Any, row: Any, user: Any) -> Any:
    """Return the actions of a row's page, see `OperationAdmin`."""
    return record_admin.actions_on(row, user)


@register.filter
def links_on(record_admin: Any, row: Any) -> Any:
    """Return the links of a row's page, see `OperationAdmin`."""
    return record_admin.links_on(row)


@register.filter
def plain(text: Any) -> str:
    """Make invisible control characters visible, so that a bidi override cannot rearrange the text beside it."""
    return INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str("" if text is None else text))


@register.filter
def line(text: Any) -> str:
    """Make all that is not printable visible, as `plain` does and line breaks, too: a page shows those as spaces."""
    return visible(str("" if text is None else text))


@register.filter
def heading(title: Any) -> str:
    """Capitalize a heading of ours; leave the name of a record unchanged, because it may be an id."""
    return plain(title) if isinstance(title, Model) else capfirst(str(title))


@register.filter
def name(text: Any) -> SafeString:
    """Render the name of an agent, channel or workspace, isolated from the direction of the text around it."""
    return SafeString(f'<bdi class="nx-name">{escape(plain(text))}</bdi>')


@register.filter
def markdown(text: str) -> SafeString:
    """Render a body as safe HTML, which the theme's scripts leave alone."""
    return format_html('<div class="nx-prose" x-ignore hx-disable dir="auto">{}</div>', rendered(plain(text)))


@register.filter
def pretty(value: Any) -> str:
    """Indent a payload that is JSON; return anything else as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return plain(value[:MAX_PLAIN])
    return plain(json.dumps(value, indent=2, ensure_ascii=False)[:MAX_PLAIN])


@register.filter
def prose(text: str) -> SafeString:
    """Render what an agent handed over: a JSON object or array indented, anything else as Markdown."""
    if text.lstrip()[:1] in ("{", "["):
        return format_html('<pre class="nx-code" tabindex="0" x-ignore>{}</pre>', pretty(text))
    return markdown(text)


# States that are no words of their own; a handoff whose lease has expired has no status for it.
STATES = {"lapsed": "lease ran out", "delivered": "being handled", "parked": "dead letter"}


@register.filter
def state(status: str) -> str:
    """Return a state in words."""
    return STATES.get(status) or status.replace("_", " ").lower()


@register.filter
def short(identifier: str | None) -> str:
    """Return the end of an id, because time-ordered ids differ there."""
    return f"…{identifier[-8:]}" if identifier and len(identifier) > 12 else identifier or ""


@register.filter
def marked(snippet: str) -> SafeString:
    """Render a search result with its hits marked."""
    text = conditional_escape(plain(snippet))
    hits = re.sub(f"{HIT_STARTS}([^{HIT_STARTS}{HIT_ENDS}]*){HIT_ENDS}", r"<mark>\1</mark>", text)
    return mark_safe(hits)  # noqa: S308  # escaped, and the tags are ours


@register.filter
def highlight(text: str, words: str) -> SafeString:
    """Mark the beginnings of words that were searched for."""
    wanted = "|".join(re.escape(word) for word in sorted(words_of(words), key=len, reverse=True))
    pieces = re.split(rf"(?<!\w)({wanted})", text, flags=re.IGNORECASE) if wanted else [text]
    return format_html_join("", "{}{}", ((piece, _mark(hit)) for piece, hit in zip_longest(pieces[::2], pieces[1::2])))


def _mark(hit: str | None) -> SafeString | str:
    return format_html("<mark>{}</mark>", hit) if hit else ""


@register.filter
def undo(tags: str | None) -> list[str]:
    """Return the operation that undoes what a message reports, and its ids; empty if there is none."""
    first, *rest = (tags or "").split(" ") or [""]
    return rest if first == UNDO else []


@register.filter
def duration(length: timedelta) -> str:
    """Return a length of time in its two largest units: `1 h 20 min`."""
    seconds = max(0.0, length.total_seconds())
    if seconds < 10:
        return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if left >= size or parts:
            parts.append((left // size, unit))
            left %= size
    return " ".join(f"{many} {unit}" for many, unit in parts[:2] if many)


@register.filter
def grouped(number: int) -> str:
    """Return a number with thousands separators: `1,234,567`."""
    return f"{number:,}"


@register.filter(name="iso")
def iso_filter(moment: datetime) -> str:
    """Return a time in the format of URLs."""
    return iso(moment)


@register.filter
def clock(moment: datetime) -> str:
    """Return a time in the format of the labels of marks."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


@register.filter
def get(mapping: Mapping[Any, Any], key: Any) -> Any:
    """Return a mapping's value for a key; an empty text if there is none."""
    return mapping.get(key, "")


DEEPEST = 6  # levels of nesting
MOST_VALUES = 300  # values on one page
OMITTED = format_html('<span class="nx-quiet">{}</span>', "… and more")


@register.filter
def readable(value: Any) -> SafeString:
    """Render a JSON value, or the text of one, as HTML; a text that is not a JSON object or list stays as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):
            value = json.loads(value)
    return format_html("<div x-ignore hx-disable>{}</div>", _ValuePage().shown(value, DEEPEST))


class _ValuePage:
    """The layout of one value, with the space that is left."""

    def __init__(self) -> None:
        self.values = MOST_VALUES
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
