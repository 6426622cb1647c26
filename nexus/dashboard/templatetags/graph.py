"""The lines of the graph as SVG. Written in Python, because a template takes many times as long for two hundred of
them."""

from __future__ import annotations

from html import escape
from urllib.parse import quote

from django import template
from django.utils.safestring import SafeString

from inbox.monitoring import Flow
from nexus.web.templatetags.nexus import plain

register = template.Library()

LINE = (
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
        lines.append(LINE.format(
            " near" if stands_out else "", escape(href), escape(flow.sender), escape(flow.recipient), edge["path"],
            " waiting" if flow.unread else "", edge["path"], edge["width"], escape(label),
        ))  # fmt: skip
    return SafeString("".join(lines))
