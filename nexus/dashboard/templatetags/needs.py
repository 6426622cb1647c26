"""The rows of the attention page. Written in Python, because a template takes several times as long for hundreds of
them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from django import template
from django.utils.safestring import SafeString

from nexus.core.contributions import Action
from nexus.web.templatetags.nexus import when

if TYPE_CHECKING:
    from nexus.dashboard.views.home import Group, Shown

register = template.Library()

ROW = (
    '<li>{}<div><p class="nx-strong">{}</p><p class="nx-small nx-quiet"><bdi>{}</bdi>{}</p></div>'
    '<span class="nx-acting">{}</span></li>'
)
CHOOSE = '<input type="checkbox" name="on" value="{}" id="choose-{}" aria-label="Choose {}">'
BUTTON = '<button class="nx-button" name="do" value="{} {}" id="do-{}-{}" aria-label="{} {}">{}</button>'


@register.simple_tag
def need_rows(group: Group) -> SafeString:
    """Render a row for each item of a group, with its actions."""
    return SafeString("".join(_row(group, need, number) for number, need in enumerate(group.needs, 1)))


def _row(group: Group, need: Shown, number: int) -> str:
    key, subject, title, url = (
        f"{group.kind.name}-{number}", escape(need.subject), escape(need.title), escape(need.url)
    )  # fmt: skip
    called = f"<bdi>{title}</bdi>"
    time = when(need.until, "left") if need.until else when(need.since, "ago") if need.since else ""
    acts = "".join(_button(action, subject, key, title) for action in group.actions)
    if not group.actions and url:
        look = escape(group.kind.look)
        acts = f'<a class="nx-button" href="{url}" aria-label="{look}: {title}">{look}</a>'
    return ROW.format(
        CHOOSE.format(subject, key, title) if group.actions else "",
        f'<a href="{url}" id="need-{key}">{called}</a>' if url else called,
        escape(need.detail),
        f" – {time}" if time else "",
        acts,
    )


def _button(action: Action, subject: str, key: str, title: str) -> str:
    name, label = action.operation, escape(action.label)
    return BUTTON.format(name, subject, name, key, label, title, label)
