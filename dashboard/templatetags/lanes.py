"""The marks of the timeline as SVG: in Python, because a template takes many times as long for a thousand of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django import template
from django.urls import reverse
from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString

from core.clock import iso
from dashboard.pages.lanes import Arrow, Bar, Block, Lane
from dashboard.templatetags.nexus import clock, plain

register = template.Library()


# By hand, and escaped where it is no number and no word of ours: `format_html` takes several times as long.
BAR = (
    '<a class="{}" id="span-{}" href="{}"{} tabindex="-1"><rect x="{:.3f}%" width="{:.3f}%" y="{}" height="11" rx="2"/>'
    "<title>{}</title></a>"
)
BLOCK = (
    '<a class="block {}" id="block-{}-{}" href="{}"{} tabindex="-1"><rect x="{:.3f}%" width="{:.3f}%" y="{}" '
    'height="11" rx="1" fill-opacity="{:.2f}"/><title>{} span{} here{}: zoom in</title></a>'
)


@register.simple_tag(takes_context=True)
def marks(context: template.Context, lane: Lane) -> SafeString:
    """The bars and blocks of a lane, from left to right, as links to what they were."""
    titles, words, by = context["titles"], context["words"], f" by {plain(lane.name)}" if lane.name else ""
    query = None if "day" in context else context["query"]
    kept = f"{context['kept']}&" if context["kept"] else ""
    nearer, whose = f"{reverse('admin:timeline')}?{kept}", escape(f" of {plain(lane.name)}" if lane.name else "")
    swaps = "" if "day" in context else ' data-swap="lanes"'
    return SafeString("".join(
        _bar(mark, titles, words, by, query) if isinstance(mark, Bar) else _block(mark, lane.top, nearer, swaps, whose)
        for mark in sorted(lane.marks, key=lambda mark: mark.x)
    ))  # fmt: skip


def _bar(bar: Bar, titles: Mapping[str, str], words: Mapping[Any, str], by: str, query: str | None) -> str:
    span = bar.span
    begun = f"from {clock(span.start)}" if span.start else "from before"
    ended = f"to {clock(span.end)}" if span.end else "still"
    if query is None:
        href = reverse("admin:handoff", args=[span.handoff_id])
    else:
        href = f"?{query}{'&' if query else ''}span={quote(span.handoff_id)}.{span.event_id}"
    title = f"{plain(titles.get(span.handoff_id, span.handoff_id))}: {words[span.doing]}{by}, {begun} {ended}"
    return BAR.format(
        span.doing, escape(f"{span.handoff_id}-{span.event_id}-{span.doing}"), escape(href),
        "" if query is None else ' data-swap="inspect" data-mark="span"',
        bar.x, bar.width, bar.y, escape(title),
    )  # fmt: skip


def _block(block: Block, top: int, nearer: str, swaps: str, whose: str) -> str:
    href = f"{nearer}since={iso(block.since)}&until={iso(block.until)}"
    return BLOCK.format(
        block.doing, top, int(block.since.timestamp() * 1000), escape(href), swaps,
        block.x, block.width, block.y, block.weight, block.count, "" if block.count == 1 else "s", whose,
    )  # fmt: skip


@register.simple_tag
def arrow(sent: Arrow, start: float, end: float, href: str) -> SafeString:
    """Sends from one lane to another, as a link to the messages."""
    line = format_html('x1="{0}%" x2="{0}%" y1="{1}" y2="{2}"', f"{sent.x:.3f}", round(start), round(end))
    return format_html(
        '<a href="{}" data-swap="inspect" tabindex="-1"><line class="hit" {}/><line class="sent" stroke-width="{}" {} '
        'marker-end="url(#sent)"/><title>{} → {}: {} message{}</title></a>',
        href, line, f"{min(4.0, 1 + sent.count**0.5 / 3):.1f}", line, plain(sent.sender), plain(sent.recipient),
        sent.count, "" if sent.count == 1 else "s",
    )  # fmt: skip


@register.simple_tag(takes_context=True)
def steps(context: template.Context, lane: Lane) -> SafeString:
    """What the lane's agent did beside handoffs, as links to what it was."""
    query = context.get("query")
    return format_html_join(
        "",
        '<a class="step" id="step-{}" href="?{}step={}" data-swap="inspect" data-mark="span" tabindex="-1">'
        '<circle cx="{}%" cy="{}" r="3.5"/><title>{}{}</title></a>',
        (
            (mark.event_id, f"{query}&" if query else "", mark.event_id, f"{mark.x:.3f}", f"{mark.y:.1f}",
             plain(mark.said), f", and {mark.more} more before" if mark.more else "")
            for mark in (context.get("steps") or {}).get(lane.name, ())
        ),
    )  # fmt: skip
