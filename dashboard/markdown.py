"""Message bodies as people read them: Markdown, and nothing that runs, loads or pretends."""

from __future__ import annotations

import nh3
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt

MAX_RENDERED = 200_000  # characters; a longer text is shown as it is, because a parser's worst case is not linear
TAGS = {
    *("p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"),
}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}

_parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])


def rendered(text: str) -> SafeString:
    """HTML of a Markdown text: HTML in it is shown, not used; images become links; only http, https, mailto."""
    if len(text) > MAX_RENDERED:
        return mark_safe(f"<pre>{nh3.clean_text(text)}</pre>")  # noqa: S308  # escaped by the line itself
    html = _parser.render(text)
    return mark_safe(  # noqa: S308  # what the sanitizer let through
        nh3.clean(
            html,
            tags=TAGS,
            attributes=ATTRIBUTES,
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    )
