"""The page behind a link that answers a question."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.shortcuts import render as django_render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from nexus.core import apps
from nexus.core.access import is_viewer, staff_name
from nexus.core.clock import now
from nexus.core.contributions import Answerable
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller, operator_connection
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import ENVELOPE
from nexus.hooks import notices as services_of_notices
from nexus.hooks.models import NoticeAddress
from nexus.web.page import in_words_of_pages


@csrf_exempt  # the link is the right to act; no cookie is
@never_cache
def notice_link(request: HttpRequest, token: str) -> HttpResponse:
    """Show the item of a link in a notice, whole; POST acts on it. GET and HEAD change nothing.

    Nobody can guess a signature, so wrong links are not slowed down: that would keep out right ones behind the same
    address.
    """
    try:
        notice_id, kind_name, subject = services_of_notices.read_link(token)
    except signing.SignatureExpired:
        return _over(request, "This link has expired.", 410)
    except (signing.BadSignature, ValueError):
        return _over(request, "This is no link of this hub, or a part of it is missing.", 404)
    row = NoticeAddress.objects.filter(pk=notice_id).first()
    kind = services_of_notices.answerable_kind(kind_name)
    if row is None or kind is None or not row.with_answers or not _still_operator(row.operator):
        return _over(request, "This link was taken back: its address gets no notices any more.", 410)
    assert kind.answerable is not None
    item = kind.answerable(subject, now())
    if item is None or item.over:
        return _over(request, item.over if item else "What it asks about is gone.", 200 if item else 410)
    if request.method == "POST":
        return _act_on(request, row, item, subject)
    return _ask_again(request, item)


def _act_on(request: HttpRequest, row: NoticeAddress, item: Answerable, subject: str) -> HttpResponse:
    known = apps.actions()
    action = known.get(request.POST.get("do", ""))
    if action is None or action.operation not in item.actions:
        return _ask_again(request, item, "Choose one of the answers.")
    given = {name: request.POST.get(name, "").strip() for name in action.asks}
    if any(not given[name] for name in action.needed):
        return _ask_again(request, item, "Write your answer first.")
    caller = Caller(transport="link", operator=row.operator, connection=operator_connection(row.operator))
    outcome = dispatch.perform(
        TOOLSETS[action.toolset], caller, action.operation, {**action.arguments(subject), **given}
    )
    envelope = in_words_of_pages(ENVELOPE.body(outcome))
    if not envelope["ok"]:
        return _ask_again(request, item, envelope["error"]["message"])
    response = redirect(request.path)
    response.status_code = 303
    return response


def _ask_again(request: HttpRequest, item: Answerable, wrong: str = "") -> HttpResponse:
    known = apps.actions()
    actions = [known[name] for name in item.actions]
    return _render(request, {"item": item, "actions": actions, "wrong": wrong}, 400 if wrong else 200)


def _over(request: HttpRequest, why: str, status: int) -> HttpResponse:
    return _render(request, {"over": why}, status)


def _render(request: HttpRequest, context: dict[str, Any], status: int) -> HttpResponse:
    response = django_render(request, "hooks/answer.html", context, status=status)
    response.headers["Referrer-Policy"] = "no-referrer"  # the address is a secret
    response.headers["X-Robots-Tag"] = "noindex"
    return response


def _still_operator(name: str) -> bool:
    """Return whether links may act for an operator: an account of this name, if there is one, may still act."""
    account = get_user_model().objects.filter(username=name).first()
    return account is None or (staff_name(account) is not None and not is_viewer(account))
