"""The address that a forge's webhook calls: it checks the signature, has the forge looked at soon, and answers at
once. A call that comes again does no harm."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from nexus.core.operations.replies import ok
from nexus.forges import services
from nexus.forges.models import Forge, ForgeKind

EVENTS = {
    ForgeKind.GITHUB: {
        *("issues", "pull_request", "issue_comment", "pull_request_review", "pull_request_review_comment"),
        *("check_run", "check_suite", "status", "workflow_run"),
    },
    ForgeKind.GITLAB: {"Issue Hook", "Note Hook", "Merge Request Hook", "Pipeline Hook", "Job Hook"},
}


@csrf_exempt  # the signature is the right to call
@require_POST
def webhook(request: HttpRequest, forge_id: str) -> HttpResponse:
    """Accept a call of a forge's webhook. What is in it is not believed: the hub asks the forge itself."""
    forge = Forge.objects.filter(pk=forge_id).first()
    if forge is None or forge.kind == ForgeKind.GIT or not is_signed(forge, request.headers, request.body):
        return JsonResponse({"ok": False}, status=401)  # the same for both, so that ids cannot be tried
    event = request.headers.get("X-GitHub-Event" if forge.kind == ForgeKind.GITHUB else "X-Gitlab-Event", "")
    is_known = event in EVENTS[ForgeKind(forge.kind)]
    if is_known:
        services.look_soon(forge)
    return JsonResponse(ok({"accepted": is_known}), status=202)


def is_signed(forge: Forge, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a call proves that its sender knows the secret."""
    if forge.kind == ForgeKind.GITLAB:
        return hmac.compare_digest(headers.get("X-Gitlab-Token", "").encode(), forge.secret.encode())
    wanted = "sha256=" + hmac.new(forge.secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers.get("X-Hub-Signature-256", "").encode(), wanted.encode())


routes = [path("forges/<str:forge_id>/webhook", webhook)]
