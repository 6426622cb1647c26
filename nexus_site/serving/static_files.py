"""Static files by WhiteNoise, without its thread: as a synchronous middleware it would hold one per parked wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from whitenoise.middleware import WhiteNoiseMiddleware


@sync_and_async_middleware
def static_files(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """Answer a request for a static file; pass any other on."""
    whitenoise = WhiteNoiseMiddleware(get_response)
    if not iscoroutinefunction(get_response):
        return cast(Callable[[HttpRequest], Any], whitenoise)
    pass_on: Callable[[HttpRequest], Awaitable[HttpResponseBase]] = get_response

    async def middleware(request: HttpRequest) -> HttpResponseBase:
        file = whitenoise.files.get(request.path_info)
        if file is None:
            return await pass_on(request)
        response = whitenoise.serve(file, request)
        return HttpResponse(b"".join(response), status=response.status_code, headers=dict(response.items()))

    return middleware
