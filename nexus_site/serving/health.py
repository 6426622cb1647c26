"""Health checks: whether the hub is alive and ready; and its metrics."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor

from django.db import DatabaseError, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from coordination.models import RetentionPass
from nexus.core import waiting
from nexus.core.access import ConnectionInfo, identify
from nexus.core.config import CoreSettings
from nexus.core.database.store import store, write
from nexus.core.operations.errors import NexusError
from nexus.core.operations.replies import ok
from nexus.core.rest.errors import refusal
from nexus_site.serving import metrics

# Asked when everything else may be at its limit: it does not wait for pages, scans or writers of this process.
READINESS = ThreadPoolExecutor(1, thread_name_prefix="nexus-readyz")
MEASURING = ThreadPoolExecutor(1, thread_name_prefix="nexus-metrics")
ENOUGH_BYTES = 64 * 1024 * 1024  # less free space on the store's disk counts as full


async def alive(request: HttpRequest) -> HttpResponseBase:
    """Answer 200 while the process answers at all."""
    return JsonResponse(ok({"status": "alive"}))


async def ready(request: HttpRequest) -> HttpResponseBase:
    """Answer 200 when calls can succeed, else 503 with the failed checks."""
    checks, problem = await waiting.in_thread(READINESS, _checks)
    good = not waiting.waiter().closing and all(checks.values())
    details = {"problem": problem} if problem else {}
    body = ok({"status": "ready" if good else "not ready", "checks": checks, **details})
    return JsonResponse({**body, "ok": good}, status=200 if good else 503)


async def metrics_view(request: HttpRequest) -> HttpResponseBase:
    """Return the metrics, for callers that may use REST."""
    metrics.update_metrics()
    try:
        info = ConnectionInfo.of_request(request, await request.auser())
        await waiting.in_thread(MEASURING, lambda: identify(info, transport="http"))
        content = await waiting.in_thread(MEASURING, metrics.exposition)
    except Exception as error:  # the authentication may also raise errors of the store
        return refusal(error)
    return HttpResponse(content, content_type=CONTENT_TYPE_LATEST)


def _checks() -> tuple[dict[str, bool], str | None]:
    """Return the checks, and the store's reason for a failed one if there is any."""
    try:
        store().check()
    except NexusError as moved:
        return {"database": False, "migrations": False, "disk": False}, moved.message
    return {"database": _writable(), "migrations": _migrated(), "disk": _room()}, None


def _writable() -> bool:
    """Return whether a write succeeds; it is rolled back. Only a write finds a read-only file or a full disk."""
    try:
        with write("readiness"):  # in the queue like any writer: else the store would seem busy while others write
            RetentionPass.objects.create()
            transaction.set_rollback(True)
    except (DatabaseError, NexusError):
        return False
    return True


def _migrated() -> bool:
    try:
        return not store().pending()
    except NexusError:
        return False


def _room() -> bool:
    config = CoreSettings.current()
    if config.database_url is not None:
        return True  # a server's disk cannot be measured; a full one makes the write fail
    try:
        return shutil.disk_usage(config.database.parent).free >= ENOUGH_BYTES
    except OSError:  # it does not exist
        return False
