"""The pages of webhooks: URLs to which events are sent, and their pending deliveries."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from coordination.toolset import COORDINATION
from nexus.hooks import selectors
from nexus.hooks.forms import WebhookActForm, WebhookForm
from nexus.web.page import operate, posted, render

SHOWN = 100  # deliveries of one webhook; it keeps no more


@never_cache
def webhooks(request: HttpRequest) -> HttpResponse:
    """Show every webhook, and the form for another; the response to the form is the only page that shows its secret."""
    form = WebhookForm(posted(request))
    if form.is_valid():
        envelope = operate(COORDINATION, request, "webhook_add", "The webhook is added.", form, **form.given())
        if envelope["ok"]:
            return render(request, "hooks/webhook_secret.html", "New webhook", added=envelope["data"])
    return render(request, "hooks/webhooks.html", "Webhooks", listed=selectors.webhooks(), form=form)


def webhook(request: HttpRequest, webhook_id: str) -> HttpResponse:
    """Show one webhook with its pending deliveries; POST retries its dead letters, or removes it."""
    if request.method == "POST":
        return _act(request, webhook_id)
    listed = next((listed for listed in selectors.webhooks() if listed.webhook.pk == webhook_id), None)
    if listed is None:
        raise Http404
    waiting = selectors.undelivered(webhook_id, SHOWN)
    row = listed.webhook
    return render(request, "hooks/webhook.html", "Webhook", about=row.url, listed=listed, webhook=row, waiting=waiting)


def _act(request: HttpRequest, webhook_id: str) -> HttpResponse:
    form = WebhookActForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Remove a webhook, or redeliver its dead letters.")
    if form.cleaned_data["what"] == "redeliver":
        operate(
            COORDINATION,
            request,
            "webhook_redeliver",
            "Its dead letters are tried again, from now.",
            webhook_id=webhook_id,
        )
    elif operate(COORDINATION, request, "webhook_remove", "The webhook is removed.", webhook_id=webhook_id)["ok"]:
        return redirect("admin:webhooks")
    return redirect("admin:webhook", webhook_id)
