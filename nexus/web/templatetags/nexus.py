"""How the pages show times, names and texts that strangers wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from html import escape
from itertools import zip_longest
from typing import Any

from django import template
from django.db.models import Model
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst

from nexus.core.clock import iso
from nexus.core.fulltext import HIT_ENDS, HIT_STARTS, words_of
from nexus.web.markdown import rendered

register = template.Library()

UNDO = "undo"  # the first of a message's tags where it can be taken back: the operation follows, then the ids
MAX_PLAIN = 200_000  # characters of a payload on a page
# Controls and format characters but line, tab and the joiners that scripts and emoji need.
INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0001\U000e0020-\U000e007f]"
)


@register.simple_tag
def when(moment: datetime | None, style: str = "at") -> SafeString | str:
    """A time: the viewer's zone by script, UTC without one, the exact UTC on hover. `style`: at, ago or left."""
    if moment is None:
        return "–"
    at = iso(moment)  # no letter of it needs escaping, and `format_html` takes several times as long
    day, minute, exact = at[:10], at[11:16], at[11:26]
    return SafeString(f'<time datetime="{at}" title="{day} {exact} UTC" data-when="{style}">{day} {minute} UTC</time>')


@register.filter
def plain(text: Any) -> str:
    """A text with its invisible controls made visible: a bidi override may not rearrange what stands beside it."""
    return INVISIBLE.sub(lambda found: f"⟨U+{ord(found[0]):04X}⟩", str("" if text is None else text))


@register.filter
def heading(title: Any) -> str:
    """A heading of ours with its capital; what a record is called as it is: an id is never changed."""
    return plain(title) if isinstance(title, Model) else capfirst(str(title))


@register.filter
def name(text: Any) -> SafeString:
    """An agent's, channel's or workspace's name, isolated from the direction of the text around it."""
    return SafeString(f'<bdi class="nx-name">{escape(plain(text))}</bdi>')


@register.filter
def markdown(text: str) -> SafeString:
    """A body as safe HTML; the theme's scripts are told to leave it alone."""
    return format_html('<div class="nx-prose" x-ignore hx-disable dir="auto">{}</div>', rendered(plain(text)))


@register.filter
def pretty(value: Any) -> str:
    """A payload as indented JSON where it is JSON, as itself where not."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return plain(value[:MAX_PLAIN])
    return plain(json.dumps(value, indent=2, ensure_ascii=False)[:MAX_PLAIN])


@register.filter
def state(status: str) -> str:
    """A state in words: a lease that ran out is none of a handoff's own."""
    return "lease ran out" if status == "lapsed" else status.replace("_", " ").lower()


@register.filter
def short(identifier: str | None) -> str:
    """The end of an id, where time-ordered ids differ."""
    return f"…{identifier[-8:]}" if identifier and len(identifier) > 12 else identifier or ""


@register.filter
def marked(snippet: str) -> SafeString:
    """What a search found, its hits marked."""
    text = conditional_escape(plain(snippet))
    hits = re.sub(f"{HIT_STARTS}([^{HIT_STARTS}{HIT_ENDS}]*){HIT_ENDS}", r"<mark>\1</mark>", text)
    return mark_safe(hits)  # noqa: S308  # escaped, and the tags are ours


SPOKEN = {"added": "ins", "removed": "del", "place": "small", "same": "span"}  # elements that say what a line is


@register.filter
def difference(lines: Iterable[tuple[str, str]]) -> SafeString:
    """The lines of a file's diff, each an element of its own kind."""
    return format_html_join("", "<{0}>{1}\n</{0}>", ((SPOKEN[kind], plain(text)) for kind, text in lines))


@register.filter
def highlight(text: str, words: str) -> SafeString:
    """A text with the beginnings of words that were searched for marked."""
    wanted = "|".join(re.escape(word) for word in sorted(words_of(words), key=len, reverse=True))
    pieces = re.split(rf"(?<!\w)({wanted})", text, flags=re.IGNORECASE) if wanted else [text]
    return format_html_join("", "{}{}", ((piece, _mark(hit)) for piece, hit in zip_longest(pieces[::2], pieces[1::2])))


def _mark(hit: str | None) -> SafeString | str:
    return format_html("<mark>{}</mark>", hit) if hit else ""


@register.filter
def undo(tags: str | None) -> list[str]:
    """The operation that takes back what a message tells of, and the ids that it takes; nothing where none does."""
    first, *rest = (tags or "").split(" ") or [""]
    return rest if first == UNDO else []


@register.filter
def duration(length: timedelta) -> str:
    """How long something lasted, in its two largest units: `1 h 20 min`."""
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
    """A number that may be large, its thousands apart: `1,234,567`."""
    return f"{number:,}"


@register.filter(name="iso")
def iso_filter(moment: datetime) -> str:
    """A moment as addresses have it."""
    return iso(moment)


@register.filter
def clock(moment: datetime) -> str:
    """A moment as the name of a mark tells it."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


@register.filter
def get(mapping: Mapping[Any, Any], key: Any) -> Any:
    """What a mapping has for a key; nothing where it has nothing."""
    return mapping.get(key, "")
