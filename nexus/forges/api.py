"""The address that a forge's webhook calls: it checks the signature, stores that there is something to look at, and
answers at once."""

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
        *("check_run", "check_suite", "workflow_run"),
    },
    ForgeKind.GITLAB: {"Issue Hook", "Note Hook", "Merge Request Hook", "Pipeline Hook", "Job Hook"},
}
MAX_NAME = 200


@csrf_exempt  # the signature is the right to call
@require_POST
def webhook(request: HttpRequest, forge_id: str) -> HttpResponse:
    """Accept a call of a forge's webhook. What is in it is not believed: the worker asks the forge itself."""
    forge = Forge.objects.filter(pk=forge_id).first()
    if forge is None or forge.kind == ForgeKind.GIT or not is_signed(forge, request.headers, request.body):
        return JsonResponse({"ok": False}, status=401)  # the same for both, so that ids cannot be tried
    event = request.headers.get("X-GitHub-Event" if forge.kind == ForgeKind.GITHUB else "X-Gitlab-Event", "")
    if event not in EVENTS[ForgeKind(forge.kind)]:
        return JsonResponse(ok({"accepted": False}), status=202)
    is_new = services.receive(forge, _delivery(forge, request), event)
    return JsonResponse(ok({"accepted": is_new}), status=202)


def is_signed(forge: Forge, headers: Mapping[str, str], body: bytes) -> bool:
    """Return whether a call proves that its sender knows the secret."""
    if forge.kind == ForgeKind.GITLAB:
        return hmac.compare_digest(headers.get("X-Gitlab-Token", "").encode(), forge.secret.encode())
    wanted = "sha256=" + hmac.new(forge.secret.encode(), body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(headers.get("X-Hub-Signature-256", "").encode(), wanted.encode())


def _delivery(forge: Forge, request: HttpRequest) -> str:
    """Return the forge's id of a call, which is the same when it is repeated; else a digest of its body."""
    names = {ForgeKind.GITHUB: ("X-GitHub-Delivery",), ForgeKind.GITLAB: ("Idempotency-Key", "X-Gitlab-Event-UUID")}
    given = next(filter(None, (request.headers.get(name) for name in names[ForgeKind(forge.kind)])), "")
    return given[:MAX_NAME] or hashlib.sha256(request.body).hexdigest()


routes = [path("forges/<str:forge_id>/webhook", webhook)]
