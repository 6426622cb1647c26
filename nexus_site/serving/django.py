"""Django in the hub: one step on a thread for a page, and none for the middleware of an asynchronous view."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from copy import copy
from functools import partial
from typing import Any

from asgiref.sync import ThreadSensitiveContext, iscoroutinefunction
from django.conf import settings
from django.contrib.messages.middleware import MessageMiddleware
from django.core import signals
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.exception import convert_exception_to_response
from django.db import close_old_connections, reset_queries
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import Resolver404, ResolverMatch, get_resolver, set_script_prefix, set_urlconf
from django.utils.deprecation import MiddlewareMixin
from django.utils.module_loading import import_string
from whitenoise.middleware import WhiteNoiseMiddleware

from nexus.core.waiting import in_thread
from nexus.web.middleware import MarkdownBudget

OF_PAGES = (MessageMiddleware, MarkdownBudget)  # asynchronous views render no pages
CONNECTIONS = (  # Django's handlers would check any free thread's connection; `_whole` checks the one that is used
    (signals.request_started, reset_queries),
    (signals.request_started, close_old_connections),
    (signals.request_finished, close_old_connections),
)


class Django(ASGIHandler):
    """Django on a fixed set of threads: Django's own way takes a thread for each request, and a step on it for each
    middleware.

    A page runs the middleware and its view in one step, on any free thread. An asynchronous view needs no thread: the
    middleware runs on the event loop, where none of it uses the store.
    """

    def __init__(self, threads: int) -> None:
        super().__init__()
        self.threads = ThreadPoolExecutor(threads, thread_name_prefix="nexus-django")
        classes = [each for each in map(import_string, settings.MIDDLEWARE) if isinstance(each, type)]
        hooks = [each(_unused) for each in classes if issubclass(each, MiddlewareMixin) and each not in OF_PAGES]
        self._before = [hook.process_request for hook in hooks if hasattr(hook, "process_request")]
        self._after = [hook.process_response for hook in reversed(hooks) if hasattr(hook, "process_response")]
        self._call = convert_exception_to_response(self._called)
        for signal, receiver in CONNECTIONS:
            signal.disconnect(receiver)
        _ = get_resolver().url_patterns  # imports every view now, and not at the first request

    def with_threads(self, threads: int) -> Django:
        """Return the same application with its own threads. Loading the middleware again would scan all static files
        again."""
        other = copy(self)
        other.threads = ThreadPoolExecutor(threads, thread_name_prefix="nexus-django")
        return other

    def load_middleware(self, is_async: bool = False) -> None:
        super().load_middleware()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope = {**scope, "path": scope.get("root_path", "") + scope["path"]}  # Django's own has the prefix of the site
        async with ThreadSensitiveContext(executor=self.threads):
            await self.handle(scope, receive, send)

    async def get_response_async(self, request: HttpRequest) -> Any:
        """Return an asynchronous view's answer, or a page's from a thread."""
        set_urlconf(settings.ROOT_URLCONF)
        found = _resolve(request.path_info)
        if found is not None and iscoroutinefunction(found.func):
            request.resolver_match = found
            return await self._call(request)  # type: ignore[misc]  # it is asynchronous as what it wraps is
        threads = getattr(found and found.func, "threads", self.threads)
        return await in_thread(threads, partial(copy_context().run, self._whole, request))

    def _whole(self, request: HttpRequest) -> HttpResponseBase:
        """Return a page, on a thread whose connection to the store may have closed since the last one."""
        close_old_connections()
        set_script_prefix(request.META["SCRIPT_NAME"])  # of this thread, as `handle` set it for the event loop's
        try:
            return self.get_response(request)
        finally:
            close_old_connections()

    async def _called(self, request: HttpRequest) -> Any:
        """Return an asynchronous view's answer, with the middleware before and after it."""
        assert request.resolver_match is not None
        view, arguments, named = request.resolver_match
        response = next(filter(None, (look(request) for look in self._before)), None)
        if response is None:
            response = await view(request, *arguments, **named)
        for look in self._after:
            response = look(request, response)
        return response


def _resolve(path: str) -> ResolverMatch | None:
    """Return the view for a path."""
    try:
        return get_resolver().resolve(path)
    except Resolver404:
        return None


def _unused(request: HttpRequest) -> HttpResponseBase:
    """The view that middleware would call if it were called as a whole."""
    raise AssertionError


def static_files(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """Answer a request for a static file; pass any other on."""
    whitenoise = WhiteNoiseMiddleware(get_response)

    def middleware(request: HttpRequest) -> HttpResponseBase:
        file = whitenoise.files.get(request.path_info)
        if file is None:
            return get_response(request)
        response = whitenoise.serve(file, request)
        return HttpResponse(b"".join(response), status=response.status_code, headers=dict(response.items()))

    return middleware
