"""Every operation by its name, over REST."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from rest_framework.exceptions import MethodNotAllowed, UnsupportedMediaType

from nexus.core.access import caller_of
from nexus.core.operations import runner
from nexus.core.operations.errors import not_found
from nexus.core.operations.registry import TOOLSETS
from nexus.core.operations.replies import ENVELOPE
from nexus.core.rest.errors import explain
from nexus.core.rest.formats import json_object


async def operation(request: HttpRequest, toolset: str, name: str) -> HttpResponse:
    """POST /api/v1/{toolset}/operations/{name}: the very answer of MCP. A waiting operation holds no thread."""
    headers = {"Cache-Control": "no-store", "Allow": "POST"}
    chosen = TOOLSETS.get(toolset)
    try:
        if request.method != "POST":
            raise MethodNotAllowed(str(request.method))
        caller = await caller_of(request, transport="rest")
        if request.content_type not in ("application/json", ""):
            raise UnsupportedMediaType(request.content_type or "")
        if chosen is None:
            raise not_found("toolset", toolset[:200])
        outcome = await runner.aperform(chosen, caller, name, json_object(request.body))
        body, status = chosen.reply.body(outcome), outcome.status
        headers |= outcome.headers
    except Exception as error:
        body, status = explain(error, chosen.reply if chosen else ENVELOPE)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JsonResponse(body, status=status, headers=headers)


# No cookie alone gets here from another site: a foreign Origin is refused. (The decorator would add a coroutine that
# every parked call holds.)
operation.csrf_exempt = True  # type: ignore[attr-defined]
