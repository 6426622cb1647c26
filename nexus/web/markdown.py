"""Markdown of message bodies as safe HTML: nothing in it runs, loads, or poses as a part of the page."""

from __future__ import annotations

import re
import time
from contextvars import ContextVar
from functools import lru_cache

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

# A text beyond one of these limits is shown unrendered: a page must not take seconds, nor grow to megabytes.
MAX_RENDERED = 16_384  # characters; a parser's worst case is not linear
MAX_CELLS = 2_000  # of tables, including those missing in short rows, which the parser fills in
MAX_BRACKETS = 1_000  # of links and images; for each the rest of the paragraph is searched
MAX_NODES = 5_000  # paragraphs, cells, links …
MAX_HTML = 200_000  # characters of the result
PAGE_SECONDS = 0.5  # of CPU time, for all texts of a page
KEPT = 256  # texts whose HTML is cached: a live page is rendered again with every event
TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}

_parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True}).enable(["table", "strikethrough"])


_DELIMITERS = re.compile(r"^\W*-[ \t|:-]*$", re.MULTILINE)  # the row below a table's head; may match other lines, too
_spent: ContextVar[list[float] | None] = ContextVar("markdown_seconds", default=None)  # of the current page


def begin_page() -> None:
    """Start a budget of PAGE_SECONDS for all texts that are rendered in this context from now on."""
    _spent.set([0.0])


def rendered(text: str) -> SafeString:
    """Return a Markdown text as HTML: HTML in it is shown as text; images become links; only http, https and mailto are
    links.

    A text that is too long, would make too much HTML, or comes after the page's time is spent is shown as it is, and
    the page says so.
    """
    if (spent := _spent.get()) is None:
        return _rendered(text)
    if spent[0] > PAGE_SECONDS:
        return _as_written(text, "The page has much to show")
    began = time.thread_time()
    html = _rendered(text)
    spent[0] += time.thread_time() - began
    return html


@lru_cache(maxsize=KEPT)
def _rendered(text: str) -> SafeString:
    if len(text) > MAX_RENDERED:
        return _as_written(text, "It is long")
    if text.count("[") > MAX_BRACKETS or _cells(text) > MAX_CELLS:
        return _as_written(text, "It has many parts")
    nodes = _parser.parse(text)
    if sum(1 + len(node.children or ()) for node in nodes) > MAX_NODES:
        return _as_written(text, "It has many parts")
    html = _parser.renderer.render(nodes, _parser.options, {})
    if len(html) > MAX_HTML:
        return _as_written(text, "It makes a large page")
    return mark_safe(  # noqa: S308  # what the sanitizer let through
        nh3.clean(
            html,
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    )


def _cells(text: str) -> int:
    """Return the largest number of table cells that a text can have: every row with as many columns as the widest."""
    blocks = (block for block in re.split(r"\n[ \t]*\n", text) if "|" in block and _DELIMITERS.search(block))
    rows = (block.split("\n") for block in blocks)
    return sum(len(lines) * (1 + max(line.count("|") for line in lines)) for lines in rows)


def _as_written(text: str, why: str) -> SafeString:
    return format_html(
        '<p class="nx-small nx-quiet">{}: shown as written, not as Markdown.</p><pre>{}</pre>', why, text
    )
