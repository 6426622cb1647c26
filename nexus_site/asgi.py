"""The hub as one ASGI application: `/mcp`, Django (REST, streams, health, admin) and `/ws/`, under any ASGI server."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import logging
import os
from typing import Any

import django
from django.conf import settings
from starlette.responses import Response

from nexus.core import surroundings
from nexus.core.config import CoreSettings
from nexus.core.instance import secret_key

if not settings.configured:  # by `serve`; another server imports this module
    surroundings.settle()
    surroundings.take_git_settings()
    os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings"
django.setup()
settings.SECRET_KEY = secret_key(CoreSettings.current().home)
own = hashlib.sha256(settings.SECRET_KEY.encode()).hexdigest()[:8]  # a browser sends cookies to every port of a host
settings.SESSION_COOKIE_NAME, settings.CSRF_COOKIE_NAME = f"nexus_session_{own}", f"nexus_csrf_{own}"

from channels.auth import AuthMiddlewareStack  # noqa: E402  # the apps first
from channels.routing import URLRouter  # noqa: E402
from django.urls import re_path  # noqa: E402

from mcp_bridge.http import McpEndpoint  # noqa: E402
from nexus.core import waiting  # noqa: E402
from nexus.core.apps import nexus_apps  # noqa: E402
from nexus.core.database.store import store  # noqa: E402
from nexus.core.operations.errors import NexusError  # noqa: E402
from nexus.core.operations.replies import Outcome, failure  # noqa: E402
from nexus_site.serving import metrics  # noqa: E402
from nexus_site.serving.bounds import Bounded  # noqa: E402
from nexus_site.serving.django import Django  # noqa: E402
from nexus_site.serving.middleware import BehindProxies, FairOrder  # noqa: E402

log = logging.getLogger(__name__)

DJANGO_THREADS = 8
LOGIN = "/admin/login/"
HEALTH = {"/healthz", "/readyz", "/metrics"}


async def refuse(scope: Any, receive: Any, send: Any) -> None:
    """Refuse any other WebSocket path."""
    await receive()
    await send({"type": "websocket.close"})


class Hub:
    """Routes by protocol and path. Its lifespan starts and ends what lives as long as the server."""

    def __init__(self) -> None:
        self.django = Django(DJANGO_THREADS)
        self.health = self.django.with_threads(1)  # does not wait behind a page
        # A password check uses a core for long: strangers' checks wait only for each other.
        self.login = self.django.with_threads(1)
        self.mcp = McpEndpoint()
        self.endpoints = [endpoint for app in nexus_apps() for endpoint in app.endpoints()]
        addresses = (address for app in nexus_apps() for address in app.addresses())
        self.alone = {address.port: address.application for address in addresses if address.application is not None}
        self.websockets = AuthMiddlewareStack(
            URLRouter([*(route for app in nexus_apps() for route in app.websocket_routes()), re_path("", refuse)])  # type: ignore[arg-type]
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        match scope["type"]:
            case "lifespan":
                await self.lifespan(receive, send)
            case _ if own := self.alone.get((scope.get("server") or (None, None))[1]):
                await own(scope, receive, send)
            case "websocket":
                await self.websockets({**scope, "root_path": ""}, receive, send)  # it is not in the path
            case _ if scope["path"] == "/mcp" or scope["path"].startswith("/mcp/"):
                await self.mcp(scope, receive, send)
            case _ if scope["path"].rstrip("/") in HEALTH:
                await self.health(scope, receive, send)
            case _ if scope["method"] == "POST" and scope["path"] == LOGIN:
                await self.login(scope, receive, send)
            case _:
                application = next((each.application for each in self.endpoints if each.serves(scope)), self.django)
                await application(scope, receive, send)

    def exempt(self, scope: Any) -> bool:
        """Return whether a request is answered without a slot: health checks must work when the hub is busy."""
        return scope["type"] == "http" and scope["path"].rstrip("/") in HEALTH

    async def refuse(self, scope: Any, receive: Any, send: Any, error: NexusError) -> None:
        """Answer a request that gets no slot, in the form of its endpoint."""
        if scope["type"] == "websocket":
            await refuse(scope, receive, send)
            return
        endpoint = next((each for each in self.endpoints if each.serves(scope)), None)
        body = endpoint.refusal(error) if endpoint else json.dumps(failure(error))
        headers = {**Outcome(error=error).headers, "content-type": "application/json"}
        if scope["path"].startswith("/admin/"):
            body, headers["content-type"] = error.message, "text/plain; charset=utf-8"
        await Response(body, error.code.status, headers)(scope, receive, send)

    async def lifespan(self, receive: Any, send: Any) -> None:
        """At startup, migrate the store to this version; at shutdown, let every parked wait answer."""
        await receive()
        try:
            for app in nexus_apps():
                app.check_settings()
            await asyncio.to_thread(store().prepare)
            store().guard()
            for app in nexus_apps():
                await waiting.in_thread(waiting.SLOW, app.on_start)
                await waiting.in_thread(waiting.SLOW, app.on_serve)
            await self.mcp.start()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        gc.freeze()  # what exists stays: no garbage collection visits it
        tasks = [asyncio.create_task(work()) for app in nexus_apps() for work in app.background_tasks()]
        for task in tasks:
            task.add_done_callback(_log_failure)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
        waiting.waiter().close()
        await self.mcp.stop()
        await asyncio.gather(*tasks, return_exceptions=True)  # each limits its own end
        await send({"type": "lifespan.shutdown.complete"})


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("Background work of the server has failed; restart the server.", exc_info=error)


metrics.observe_calls()
hub = Hub()
application = BehindProxies(Bounded(FairOrder(hub, exempt=hub.exempt, refuse=hub.refuse)))
