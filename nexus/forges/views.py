"""The page of connected forges."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache

from coordination.toolset import COORDINATION
from nexus.forges.forms import ForgeActForm, ForgeForm
from nexus.forges.models import Forge
from nexus.web.page import operate, posted, render


@never_cache
def forges(request: HttpRequest) -> HttpResponse:
    """Show the connected repositories, and the form for another; the response to the form is the only page that shows
    its webhook's secret. POST with `do=disconnect` forgets one."""
    if request.POST.get("do") == "disconnect":
        return _disconnect(request)
    form = ForgeForm(posted(request))
    if form.is_valid():
        envelope = operate(COORDINATION, request, "forge_connect", "It is connected.", form, **form.arguments())
        if envelope["ok"] and envelope["data"]["webhook_secret"] is None:
            return redirect("admin:forges")
        if envelope["ok"]:
            return render(request, "forges/connected.html", "Connected", added=envelope["data"])
    rows = Forge.objects.select_related("workspace").order_by("created_at", "pk")
    return render(request, "forges/forges.html", "Forges", rows=rows, form=form)


def _disconnect(request: HttpRequest) -> HttpResponse:
    form = ForgeActForm(request.POST)
    if not form.is_valid():
        return HttpResponseBadRequest("Name the repository to disconnect.")
    operate(COORDINATION, request, "forge_disconnect", "It is disconnected.", **form.cleaned_data)
    return redirect("admin:forges")
