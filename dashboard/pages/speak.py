"""Speak: an operator writes to agents, hands work over and answers, through the operations that agents use."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from coordination.models import Agent, Workspace
from coordination.selectors import capabilities
from coordination.toolset import run
from core.access import OPERATOR_AGENT
from dashboard.page import operate, operator, render
from inbox.models import Message

STRATEGIES = {"direct": "agent_id", "role": "role", "capability": "capability", "broadcast": None}


def speak(request: HttpRequest) -> HttpResponse:
    """The form; `?what=handoff`, `?to=agent` and `?reply=message` fill it."""
    if request.method == "POST":
        return _send(request)
    return _form(request, request.GET.dict())


def _form(request: HttpRequest, values: dict[str, str]) -> HttpResponse:
    reply = Message.objects.select_related("workspace").filter(pk=values.get("reply", "")).first()
    if reply is not None and "subject" not in values:
        values |= {
            "to": reply.from_agent_id,
            "workspace": reply.workspace_id,
            "subject": reply.subject if reply.subject.startswith("Re: ") else f"Re: {reply.subject}",
        }
    return render(
        request,
        "speak",
        "Speak",
        values=values,
        reply=reply,
        workspaces=list(Workspace.objects.order_by("-last_seen_at")[:200]),
        agents=list(Agent.objects.exclude(pk=OPERATOR_AGENT).order_by("agent_id").values_list("agent_id", flat=True)),
        roles=sorted({role for role in Agent.objects.values_list("role", flat=True) if role}),
        capabilities=list(capabilities()),
        identity=OPERATOR_AGENT,
    )


def _send(request: HttpRequest) -> HttpResponse:
    values = request.POST.dict()
    where: HttpResponse | None
    workspace = Workspace.objects.filter(pk=values.get("workspace", "")).first()
    if workspace is None:
        messages.error(request, "Choose a workspace: a message belongs to one.")
        return _form(request, values)
    _be_known(request)
    common = {"project_root": workspace.root_realpath, "from_agent_id": OPERATOR_AGENT, "target": _target(values)}
    if values.get("what") == "handoff":
        envelope = operate(
            request,
            "handoff_create",
            "The handoff is open.",
            **common,
            visibility=values.get("visibility", "public"),
            payload=values.get("payload") or None,
        )
        where = redirect("admin:handoff", envelope["data"]["handoff_id"]) if envelope["ok"] else None
    else:
        envelope = operate(
            request,
            "message_create",
            "The message is sent.",
            **common,
            subject=values.get("subject", ""),
            body=values.get("body", ""),
            parent_message_id=values.get("reply") or None,
        )
        where = _to_mail(envelope["data"]["message_id"]) if envelope["ok"] else None
    if where is None:
        return _form(request, values)
    if warning := envelope["data"].get("warning"):
        messages.warning(request, warning)
    return where


def _to_mail(message_id: str) -> HttpResponse:
    response = redirect("admin:mail")
    response.headers["Location"] += f"?m={message_id}"
    return response


def _target(values: dict[str, str]) -> dict[str, Any]:
    strategy = values.get("strategy", "direct")
    field = STRATEGIES.get(strategy)
    chosen = values.get({"direct": "to"}.get(strategy, strategy), "")
    return {"strategy": strategy, **({field: chosen} if field else {})}


def _be_known(request: HttpRequest) -> None:
    """An agent can answer only somebody who is registered."""
    if not Agent.objects.filter(pk=OPERATOR_AGENT).exists():
        run(operator(request), "agent_register", {"agent_id": OPERATOR_AGENT, "role": "operator"})


@require_POST
def mark_read(request: HttpRequest, message_id: str) -> HttpResponse:
    """Acknowledge a message that came to the operator."""
    operate(request, "inbox_ack", "Marked as read.", agent_id=OPERATOR_AGENT, message_ids=message_id)
    return _to_mail(message_id)
