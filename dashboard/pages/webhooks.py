"""Webhooks: the addresses that are called with events, and what each still has to get."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from dashboard.forms.webhooks import WebhookForm
from dashboard.page import operate, render
from hooks import selectors

SHOWN = 100  # deliveries of one webhook; it keeps no more


@never_cache
def webhooks(request: HttpRequest) -> HttpResponse:
    """Every webhook, and the form for another; the answer to the form is the one page that shows its secret."""
    form = WebhookForm(request.POST if request.method == "POST" else None)
    if form.is_valid():
        envelope = operate(request, "webhook_add", "The webhook is added.", **form.given())
        if envelope["ok"]:
            return render(request, "webhook_secret", "New webhook", added=envelope["data"])
    return render(request, "webhooks", "Webhooks", listed=selectors.webhooks(), form=form)


def webhook(request: HttpRequest, webhook_id: str) -> HttpResponse:
    """One webhook with what it still has to deliver; POST tries its dead letters again, or removes it."""
    if request.method == "POST":
        if request.POST.get("what") == "remove":
            removed = operate(request, "webhook_remove", "The webhook is removed.", webhook_id=webhook_id)
            return redirect("admin:webhooks") if removed["ok"] else redirect("admin:webhook", webhook_id)
        if request.POST.get("what") != "redeliver":
            return HttpResponseBadRequest("Remove a webhook, or redeliver its dead letters.")
        operate(request, "webhook_redeliver", "Its dead letters are tried again, from now.", webhook_id=webhook_id)
        return redirect("admin:webhook", webhook_id)
    listed = next((listed for listed in selectors.webhooks() if listed.webhook.pk == webhook_id), None)
    if listed is None:
        raise Http404
    waiting = selectors.undelivered(webhook_id, SHOWN)
    return render(request, "webhook", "Webhook", listed=listed, webhook=listed.webhook, waiting=waiting)
