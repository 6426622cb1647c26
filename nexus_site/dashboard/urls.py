"""The dashboard's pages, below /admin/."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.admin import AdminSite
from django.contrib.admin.utils import quote, unquote
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, register_converter

from nexus_site.dashboard import agents, board, events, graph, hub, mail, search, speak


class AgentId:
    """An agent's id in a path: any text, in the admin's own quoting, and no way up (`..`)."""

    regex = "[^/]+"

    def to_python(self, value: str) -> str:
        return str(unquote(value))

    def to_url(self, value: str) -> str:
        return str(quote(value)).replace(".", "_2E") if not value.strip(".") else str(quote(value))


register_converter(AgentId, "agent")


def pages(site: AdminSite) -> list[URLPattern]:
    """Every page, behind the admin's own check of who may enter."""
    views: dict[str, tuple[str, Callable[..., HttpResponseBase]]] = {
        "graph": ("graph/", graph.graph),
        "board": ("board/", board.board),
        "handoff": ("board/<str:handoff_id>/", board.handoff),
        "handoff_cancel": ("board/<str:handoff_id>/cancel/", board.cancel),
        "mail": ("mail/", mail.mail),
        "mark_read": ("mail/<str:message_id>/read/", speak.mark_read),
        "find": ("find/", search.find),
        "events": ("events/", events.events),
        "event_tail": ("events/tail/", events.tail),
        "event_export": ("events/export/", events.export),
        "event": ("events/<int:event_id>/", events.event),
        "agents": ("agents/", agents.agents),
        "agent_new": ("agents/+new/", agents.new),
        "agent_key": ("agents/<agent:agent_id>/key/", agents.key),
        "agent_delete": ("agents/<agent:agent_id>/delete/", agents.delete),
        "agent_close_session": ("agents/<agent:agent_id>/close/", agents.close_session),
        "agent_mail": ("agents/<agent:agent_id>/mail/", mail.agent_mail),
        "agent_try": ("agents/<agent:agent_id>/try/", agents.try_it),
        "agent": ("agents/<agent:agent_id>/", agents.agent),
        "speak": ("speak/", speak.speak),
        "settings": ("settings/", hub.settings),
        "retention": ("retention/", hub.retention),
        "reset": ("retention/reset/", hub.reset),
        "help": ("help/", hub.help),
        "about": ("about/", hub.about),
    }
    return [path(route, site.admin_view(view), name=name) for name, (route, view) in views.items()]
