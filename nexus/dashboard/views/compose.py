"""Compose: an operator sends messages, handoffs and answers, through the operations that agents use."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from coordination.models import Agent
from coordination.toolset import COORDINATION, run
from inbox.models import Delivery
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.dashboard.forms import SpeakForm
from nexus.web.page import form_only, operate, operator, render


def speak(request: HttpRequest) -> HttpResponse:
    """Show the form; `?what=handoff`, `?to=agent` and `?reply=message` fill it."""
    if request.method != "POST":
        return _page(request, SpeakForm(initial=request.GET.dict()))
    form = SpeakForm(request.POST)
    sent = _sent(request, form) if form.is_valid() else None
    return sent or _page(request, form)


def _page(request: HttpRequest, form: SpeakForm) -> HttpResponse:
    return render(request, "dashboard/speak.html", "Compose", form=form, identity=OPERATOR_AGENT)


def _sent(request: HttpRequest, form: SpeakForm) -> HttpResponse | None:
    """Send it and return a redirect to the page that shows it; None if it was refused."""
    _be_known(request)
    given = form.cleaned_data
    common = {
        "project_root": form.workspaces[given["workspace"]].root_realpath,
        "from_agent_id": OPERATOR_AGENT,
        "target": form.target(),
        "client_id": form.client_id,
    }
    if given["what"] == "handoff":
        work = {
            "visibility": given["visibility"] or "public",
            "payload": given["payload"],
            "title": given["title"] or None,
        }
        envelope = operate(COORDINATION, request, "handoff_create", "The handoff is open.", form, **common, **work)
    else:
        letter = {"subject": given["subject"], "body": given["body"], "parent_message_id": given["reply"] or None}
        envelope = operate(COORDINATION, request, "message_create", "The message is sent.", form, **common, **letter)
    if not envelope["ok"]:
        return None
    data = envelope["data"]
    if data.get("duplicate"):
        messages.info(request, "This form was sent before, with the same words: there is no second one.")
    if warning := data.get("warning"):
        messages.warning(request, warning)
    return redirect("admin:handoff", data["handoff_id"]) if "handoff_id" in data else _to_mail(data["message_id"])


def _to_mail(message_id: str) -> HttpResponse:
    response = redirect("admin:mail")
    response.headers["Location"] += f"?m={message_id}"
    return response


def _be_known(request: HttpRequest) -> None:
    """Register the operator, because an agent can answer only somebody who is registered."""
    if not Agent.objects.filter(pk=OPERATOR_AGENT).exists():
        run(operator(request), "agent_register", {"agent_id": OPERATOR_AGENT, "role": "operator"})


@form_only(_to_mail)
def mark_read(request: HttpRequest, message_id: str) -> HttpResponse:
    """Acknowledge a message to the operator."""
    envelope = operate(COORDINATION, request, "inbox_ack", "", agent_id=OPERATOR_AGENT, message_ids=message_id)
    if envelope["ok"]:
        if envelope["data"]["acknowledged"]:
            messages.success(request, "Marked as read.")
        elif Delivery.objects.of(OPERATOR_AGENT).filter(message_id=message_id).exists():
            messages.info(request, "It was marked as read before.")
        else:
            messages.warning(request, "Nothing was marked: this message is gone from the operator's inbox.")
    return _to_mail(message_id)
