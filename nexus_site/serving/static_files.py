"""Static files by WhiteNoise, each in one piece: an event loop cannot read a file while it sends it."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware


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
