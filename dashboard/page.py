"""What every page of the dashboard shares: its frame, and the one way to act."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest
from django.template.response import TemplateResponse

from coordination.models import Event
from coordination.toolset import run
from core.operations.caller import Caller
from core.operations.replies import Body
from dashboard.forms.base import OperationForm


def render(request: HttpRequest, template: str, title: str, **context: Any) -> TemplateResponse:
    """A page in the admin's frame. `cursor` is the newest event it can know of: where its live connection starts."""
    newest = Event.objects.order_by("-event_id").values_list("event_id", flat=True).first() or 0
    frame = {"cursor": newest, **admin.site.each_context(request), "title": title}
    return TemplateResponse(request, f"dashboard/{template}.html", {**frame, **context})


def operator(request: HttpRequest) -> Caller:
    """The person at the page, as the operations know them."""
    return Caller(transport="admin", operator=request.user.get_username())


def operate(request: HttpRequest, name: str, done: str, form: OperationForm | None = None, **arguments: Any) -> Body:
    """Call an operation as the operator and tell how it went: at the form's field that an error names, or above."""
    envelope = run(operator(request), name, arguments)
    if envelope["ok"]:
        messages.success(request, done)
    elif form is None or not form.refused(envelope["error"]):
        error = envelope["error"]
        messages.error(request, f"{error['message']} ({error['code']})")
    return envelope
