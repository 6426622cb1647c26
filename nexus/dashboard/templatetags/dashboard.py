"""The many parts of a page: the marks and rows of the timeline, the lines of the graph, the rows of the attention page.
Written in Python, because a template takes many times as long for hundreds of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus

from django import template
from django.urls import get_script_prefix, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from handoffs.spans import Span as HandoffSpan
from inbox.monitoring import Flow
from nexus.control.agents.timeline import At
from nexus.core.clock import iso
from nexus.core.contributions import Action
from nexus.dashboard.views.timeline_layout import Arrow, Bar, Block, Span, TimelineRow
from nexus.web.templatetags.nexus import clock, name, plain, when

if TYPE_CHECKING:
    from nexus.dashboard.views.home import AttentionGroup, AttentionRow

register = template.Library()


# Formatted by hand; only agents' texts are escaped, because `format_html` takes several times as long.
BAR = (
    '<a class="{}" id="span-{}" href="{}" data-swap="inspect" data-mark="span" tabindex="-1"><rect x="{:.3f}%" '
    'width="{:.3f}%" y="{}" height="11" rx="2"/><title>{}</title></a>'
)
BLOCK = (
    '<a class="block {}" id="block-{}-{}" href="{}" data-swap="chart-rows" tabindex="-1"><rect x="{:.3f}%" '
    'width="{:.3f}%" y="{}" height="11" rx="1" fill-opacity="{:.2f}"/><title>{} span{} here{} ({}): zoom in</title></a>'
)
ARROW = (
    '<a href="{}" data-swap="inspect" tabindex="-1"><line class="hit" {}/><line class="sent" stroke-width="{:.1f}" {} '
    'marker-end="url(#sent)"/><title>{}</title></a>'
)
CROWD = (
    '<rect class="crowd" x="{:.3f}%" width="{:.3f}%" y="{:.1f}" height="{:.1f}">'
    "<title>{:.1f} waited, on average</title></rect>"
)
ROW = (
    '<tr><td><a href="{}">{}</a></td><td data-label="Was">{}</td><td data-label="With">{}</td>'
    '<td data-label="From">{}</td><td data-label="To">{}</td></tr>'
)


@register.simple_tag(takes_context=True)
def marks(context: template.Context, row: TimelineRow) -> SafeString:
    """Render the bars and blocks of a row, from left to right, as links to their details."""
    titles, words, by = context["titles"], context["words"], f" by {plain(row.name)}" if row.name else ""
    query = context["query"]
    kept = f"{context['kept']}&" if context["kept"] else ""
    nearer, whose = f"{_address('admin:timeline')}?{kept}", escape(f" of {plain(row.name)}" if row.name else "")
    return SafeString("".join(
        _bar(mark, row.y(mark), titles, words, by, query) if isinstance(mark, Bar)
        else _block(mark, row.y(mark), row.top, words, nearer, whose)
        for mark in sorted(row.marks, key=lambda mark: mark.x)
    ))  # fmt: skip


def _bar(bar: Bar, y: int, titles: Mapping[str, str], words: Mapping[Any, str], by: str, query: str) -> str:
    span = bar.span
    begun = f"from {clock(span.start)}" if span.start else "from before"
    ended = f"to {clock(span.end)}" if span.end else "still"
    href = f"?{query}{'&' if query else ''}span={quote(chosen_by(span))}"
    title = f"{plain(titles.get(span.key, span.key))}: {words[span.doing]}{by}, {begun} {ended}"
    return BAR.format(
        span.doing, escape(f"{chosen_by(span)}-{span.doing}"), escape(href),
        bar.x, bar.width, y, escape(title),
    )  # fmt: skip


def chosen_by(span: Span) -> str:
    """Return the value of `?span=` for a span: the id of a turn or a question; for a handoff, the event that began the
    span."""
    return f"{span.handoff_id}.{span.event_id}" if isinstance(span, HandoffSpan) else span.key


def page_of(span: Span) -> str:
    """Return the page of the turn, question or handoff that a span belongs to."""
    if isinstance(span, HandoffSpan):
        return _page("admin:handoffs_handoff_change", span.key)
    return _page("admin:question" if span.doing == At.ASKING else "admin:pool_turn", span.key)


def _page(route: str, identifier: str) -> str:
    return _address(route, "-").replace("/-/", f"/{quote(identifier)}/")


@register.filter
def agent_page(agent_id: str) -> str:
    """Return the page of an agent."""
    return _address("admin:agent", agent_id)


def _address(route: str, *of: str) -> str:
    return _remembered(route, of, get_script_prefix())


@lru_cache(maxsize=512)
def _remembered(route: str, of: tuple[str, ...], prefix: str) -> str:
    """Return the URL of a page. Cached, because `reverse` takes longer than the rest of a link."""
    return reverse(route, args=of)


def _block(block: Block, y: int, top: int, words: Mapping[Any, str], nearer: str, whose: str) -> str:
    began, href = _zoomed(nearer, block.since, block.until)
    count, what = block.count, ", ".join([f"{many} × {words[doing]}" for doing, many in block.counted.items()])
    return BLOCK.format(
        block.doing, top, began, href,
        block.x, block.width, y, block.weight, count, "" if count == 1 else "s", whose, what,
    )  # fmt: skip


@lru_cache(maxsize=512)  # many rows use the same cell
def _zoomed(nearer: str, since: datetime, until: datetime) -> tuple[int, str]:
    """Return when a cell begins, in ms since 1970, and the URL that choosing it leads to."""
    return int(since.timestamp() * 1000), escape(f"{nearer}since={iso(since)}&until={iso(until)}")


@register.simple_tag(takes_context=True)
def arrows(context: template.Context) -> SafeString:
    """Render messages from one row to another as arrows that link to them."""
    kept = f"{context['query']}&" if context.get("query") else ""
    return SafeString("".join(_arrow(kept, *drawn) for drawn in context.get("arrows") or ()))


def _arrow(kept: str, sent: Arrow, start: float, end: float) -> str:
    line = f'x1="{sent.x:.3f}%" x2="{sent.x:.3f}%" y1="{start:.0f}" y2="{end:.0f}"'
    href = (
        f"?{kept}sender={quote_plus(sent.sender)}&recipient={quote_plus(sent.recipient)}"
        f"&sent_since={iso(sent.since)}&sent_until={iso(sent.until)}"
    )
    title = f"{plain(sent.sender)} → {plain(sent.recipient)}: {sent.count} message{'' if sent.count == 1 else 's'}"
    return ARROW.format(escape(href), line, min(4.0, 1 + sent.count**0.5 / 3), line, escape(title))


@register.simple_tag(takes_context=True)
def crowd(context: template.Context) -> SafeString:
    """Render how many handoffs waited in each part of the window."""
    return SafeString("".join(
        CROWD.format(each["x"], each["width"], each["y"], each["height"], each["many"])
        for each in context.get("crowd") or ()
    ))  # fmt: skip


@register.simple_tag(takes_context=True)
def spans(context: template.Context) -> SafeString:
    """Render the rows of the table of spans."""
    titles, words = context["titles"], context["words"]
    return SafeString("".join(
        ROW.format(
            escape(page_of(span)),
            escape(plain(titles.get(span.key) or span.key)),
            words[span.doing],
            name(span.agent_id) if span.agent_id else "–",
            when(span.start) if span.start else "before",
            when(span.end) if span.end else "still",
        )
        for span in context["rows"]
    ))  # fmt: skip


@register.simple_tag(takes_context=True)
def steps(context: template.Context, row: TimelineRow) -> SafeString:
    """Render what the row's agent did besides handoffs, as links."""
    query = context.get("query")
    return format_html_join(
        "",
        '<a class="step" id="step-{}" href="?{}step={}" data-swap="inspect" data-mark="span" tabindex="-1">'
        '<circle cx="{}%" cy="{}" r="3.5"/><title>{}{}</title></a>',
        (
            (mark.event_id, f"{query}&" if query else "", mark.event_id, f"{mark.x:.3f}", f"{mark.y:.1f}",
             plain(mark.said), f", and {mark.more} more before" if mark.more else "")
            for mark in (context.get("steps") or {}).get(row.name, ())
        ),
    )  # fmt: skip


GRAPH_LINE = (
    '<a class="line{}" href="{}" data-swap="inspect map" data-from="{}" data-to="{}" tabindex="-1" aria-hidden="true">'
    '<path class="hit" d="{}"/><path class="edge{}" d="{}" stroke-width="{}" marker-end="url(#head)"/>'
    "<title>{}</title></a>"
)


@register.simple_tag(takes_context=True)
def edges(context: template.Context) -> SafeString:
    """Render the messages between agents as lines that link to them."""
    near, inspected = context["near"], context["inspected"]
    agent_id = inspected["state"].agent_id if inspected and inspected["kind"] == "agent" else None
    lines = []
    for edge in context["edges"]:
        flow: Flow = edge["flow"]
        ends = {flow.sender, flow.recipient}
        stands_out = agent_id in ends if agent_id else ends <= near
        href = f"?{context['here']}&from={quote(flow.sender, safe='')}&to={quote(flow.recipient, safe='')}"
        label = f"{plain(flow.sender)} → {plain(flow.recipient)}: {flow.messages} messages, {flow.unread} unread"
        lines.append(GRAPH_LINE.format(
            " near" if stands_out else "", escape(href), escape(flow.sender), escape(flow.recipient), edge["path"],
            " waiting" if flow.unread else "", edge["path"], edge["width"], escape(label),
        ))  # fmt: skip
    return SafeString("".join(lines))


NEED_ROW = (
    '<li>{}<div><p class="nx-strong">{}</p><p class="nx-small nx-quiet"><bdi>{}</bdi>{}</p></div>'
    '<span class="nx-acting">{}</span></li>'
)
NEED_CHOICE = '<input type="checkbox" name="on" value="{}" id="choose-{}" aria-label="Choose {}">'
NEED_BUTTON = '<button class="nx-button" name="do" value="{} {}" id="do-{}-{}" aria-label="{} {}">{}</button>'


@register.simple_tag
def need_rows(group: AttentionGroup) -> SafeString:
    """Render a row for each item of a group, with its actions."""
    return SafeString("".join(_need_row(group, need, number) for number, need in enumerate(group.needs, 1)))


def _need_row(group: AttentionGroup, need: AttentionRow, number: int) -> str:
    key, subject, title, url = (
        f"{group.kind.name}-{number}", escape(need.subject), escape(need.title), escape(need.url)
    )  # fmt: skip
    called = f"<bdi>{title}</bdi>"
    time = when(need.until, "left") if need.until else when(need.since, "ago") if need.since else ""
    acts = "".join(_need_button(action, subject, key, title) for action in group.actions)
    if not group.actions and url:
        look = escape(group.kind.look)
        acts = f'<a class="nx-button" href="{url}" aria-label="{look}: {title}">{look}</a>'
    return NEED_ROW.format(
        NEED_CHOICE.format(subject, key, title) if group.actions else "",
        f'<a href="{url}" id="need-{key}">{called}</a>' if url else called,
        escape(need.detail),
        f" – {time}" if time else "",
        acts,
    )


def _need_button(action: Action, subject: str, key: str, title: str) -> str:
    name, label = action.operation, escape(action.label)
    return NEED_BUTTON.format(name, subject, name, key, label, title, label)
