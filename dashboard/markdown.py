"""Message bodies as people read them: Markdown, and nothing that runs, loads or pretends."""

from __future__ import annotations

from functools import lru_cache

import nh3
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

# A text beyond one of these is shown as it was written: a page must not take seconds, nor be of megabytes.
MAX_RENDERED = 16_384  # characters; a parser's worst case is not linear
MAX_NODES = 5_000  # paragraphs, cells, links …
MAX_HTML = 200_000  # characters that come of it
KEPT = 256  # texts whose HTML is kept: a live page is made again with every event, of the same messages but for one
TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}

_parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])


@lru_cache(maxsize=KEPT)
def rendered(text: str) -> SafeString:
    """HTML of a Markdown text: HTML in it is shown, not used; images become links; only http, https, mailto.

    A text that is too long, or would make too much of a page, stands there as it is, and the page says so.
    """
    if len(text) > MAX_RENDERED:
        return _as_written(text, "It is long")
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


def _as_written(text: str, why: str) -> SafeString:
    return format_html(
        '<p class="nx-small nx-quiet">{}: shown as written, not as Markdown.</p><pre>{}</pre>', why, text
    )
