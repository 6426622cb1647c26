"""Mail: one inbox over all agents and workspaces."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from coordination.provenance import on_behalf_of, provenance_row, sender_in_words
from inbox import monitoring, receipts, search
from inbox.forms import STATUSES, MailFilters
from inbox.lifecycle import effective
from inbox.models import Delivery, Message
from inbox.monitoring import MailFilter
from nexus.core.clock import now
from nexus.web.page import render

PAGE = 50
FOUND = 200  # search hits that a filter narrows down


def mail(request: HttpRequest) -> TemplateResponse:
    """List and reading pane. Filters: workspace, agent, channel, status, q; `?m=`, or the first one, is open
    (`alone=1`: without the list), `?before=` pages."""
    filters = MailFilters(request.GET)
    wanted = MailFilter(
        workspace_id=filters.chosen_workspace.pk if filters.chosen_workspace else "",
        agent_id=filters.text("agent"),
        channel_id=filters.text("channel"),
        status=filters.text("status"),
    )
    words, before = filters.text("q"), filters.text("before")
    among = None
    if words:
        found = search.search(words, limit=FOUND, before=search.document_of(before) if before else None)
        among = [hit.identifier for hit in found if hit.kind == "message"]
    messages = monitoring.mail(wanted, before=before, limit=PAGE + 1, among=among)
    letters = messages[:PAGE]
    older = letters[-1].message_id if len(messages) > PAGE else None
    if older is None and among and len(found) == FOUND:
        older = among[-1]  # there may be more beyond the hits that were looked at
    deliveries = monitoring.deliveries_for(letters)
    alone = filters.is_valid() and filters.cleaned_data["alone"]
    opened = _open(filters.text("m") or (letters[0].message_id if letters else ""))
    return render(
        request,
        "inbox/mail.html",
        "Inbox",
        about=opened["opened"].subject if alone and opened["opened"] else "",
        letters=[(letter, _summary(deliveries[letter.message_id])) for letter in letters],
        older=older,
        query=filters.query("m", "before", "alone"),
        here=filters.query("m", "alone"),
        alone=alone,
        filters=filters,
        statuses=STATUSES,
        wanted=wanted,
        **opened,
    )


def message(request: HttpRequest, message_id: str) -> HttpResponse:
    """One message, at an address of its own."""
    return redirect(f"{reverse('admin:mail')}?{urlencode({'m': message_id, 'alone': '1'})}")


def _open(message_id: str) -> dict[str, Any]:
    """Return the message in the reading pane, with its recipients and its thread."""
    message = Message.objects.select_related("workspace", "channel", "parent").filter(pk=message_id).first()
    if message is None:
        return {"opened": None}
    moment = now()
    deliveries = monitoring.deliveries_for([message])[message.message_id]
    for delivery in deliveries:
        delivery.status = effective(delivery.status, delivery.lease_expires_at, moment)
    return {
        "opened": message,
        "sender": sender_in_words(provenance_row(message, on_behalf_of([message]))),
        "deliveries": receipts.steps(message, deliveries),
        "thread": monitoring.thread(message),
        "expected": message.expect and receipts.Stages(str(message.expect)).label,
    }


def _summary(deliveries: list[Delivery]) -> dict[str, int]:
    """Count the recipients by status."""
    moment = now()
    counted: dict[str, int] = {}
    for delivery in deliveries:
        status = effective(delivery.status, delivery.lease_expires_at, moment)
        counted[status] = counted.get(status, 0) + 1
    return counted
