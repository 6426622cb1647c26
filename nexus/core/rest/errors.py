"""Bodies and errors of REST: every request is one JSON object; every answer, an error too, is in the envelope or its
toolset's form, with the status of its code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework.exceptions import APIException, MethodNotAllowed, UnsupportedMediaType, ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from nexus.core.operations import dispatch
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.replies import ENVELOPE, Outcome, Reply, failure, ok

CODE_OF_STATUS = {401: Code.NOT_OWNER, 403: Code.NOT_OWNER, 404: Code.NOT_FOUND, 413: Code.CONTENT_TOO_LARGE}


def on_error(exception: Exception, context: Mapping[str, Any]) -> Response:
    """Answer any exception in the form of the view's toolset; DRF's exception handler."""
    toolset = getattr(context["view"], "toolset", None)
    response = CompleteResponse(*explain(exception, toolset.reply if toolset else ENVELOPE))
    if isinstance(exception, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(context["view"].allowed_methods)
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.exception = True
    return response


def explain(exception: Exception, reply: Reply = ENVELOPE) -> tuple[dict[str, Any], int]:
    """Return the body and the HTTP status for any exception."""
    error, status = _documented(exception)
    return reply.body(Outcome(error=error)), status


def refusal(exception: Exception) -> JsonResponse:
    """Return the error response of a view that is not DRF's."""
    body, status = explain(exception)
    return JsonResponse(body, status=status, headers={"WWW-Authenticate": "Bearer"} if status == 401 else None)


def _documented(exception: Exception) -> tuple[NexusError, int]:
    if isinstance(exception, Http404):
        exception = NexusError(Code.NOT_FOUND, "No such resource, or none that you may see.")
    elif isinstance(exception, PermissionDenied):
        exception = NexusError(Code.NOT_OWNER, "You may not do this.")
    elif isinstance(exception, RequestDataTooBig):
        exception = NexusError(Code.CONTENT_TOO_LARGE, "The request's body is too large.")
    elif isinstance(exception, ValidationError):
        fields = exception.detail if isinstance(exception.detail, dict) else {"body": exception.detail}
        message = "; ".join(f"{name}: {' '.join(map(str, why))}" for name, why in fields.items())
        exception = invalid(message, fields={name: [str(text) for text in why] for name, why in fields.items()})
    elif isinstance(exception, UnsupportedMediaType):
        return invalid("Send JSON, with the header Content-Type: application/json."), exception.status_code
    elif isinstance(exception, APIException):
        code = CODE_OF_STATUS.get(exception.status_code, Code.VALIDATION_ERROR)
        return NexusError(code, str(exception.detail)), exception.status_code
    error = dispatch.documented(exception)
    return error, Outcome(error=error).status


# What Django answers where no view of ours comes to it


def _in_envelope(request: HttpRequest, error: NexusError, status: int) -> HttpResponse | None:
    """Return the answer for a program; None for a person, who gets a page. A browser names HTML, a program does not."""
    path, is_browser = request.path_info, "text/html" in request.headers.get("Accept", "")
    if path.startswith("/admin/") or (is_browser and not path.startswith("/api/")):
        return None
    return JsonResponse(failure(error), status=status)


def unknown(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown path; Django's handler404."""
    error = NexusError(
        Code.NOT_FOUND,
        "There is nothing at this path; /api/v1/schema lists what there is. There is no OAuth here: send an agent's "
        "API key in the header Authorization: Bearer nxs_….",
    )
    return _in_envelope(request, error, 404) or defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a foreign Host or a malformed request; Django's handler400."""
    error = invalid("The request is malformed, or its Host is not served here.")
    return _in_envelope(request, error, 400) or defaults.bad_request(request, exception)


def broken(request: HttpRequest) -> HttpResponse:
    """Answer an unexpected error; Django's handler500."""
    error = NexusError(Code.INTERNAL_ERROR, "An unexpected internal error occurred.")
    return _in_envelope(request, error, 500) or defaults.server_error(request)


class OnlyJson(BaseContentNegotiation):
    """Content negotiation with one representation, whatever the client asks for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        content_type = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == content_type), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


class CompleteResponse(Response):
    """A response whose data is the whole body already, as a toolset's reply is."""


class EnvelopeRenderer(JSONRenderer):
    """A renderer that puts data into the success envelope, unless the response is whole."""

    charset = None

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        body = data if isinstance((renderer_context or {}).get("response"), CompleteResponse) else ok(data)
        return json.dumps(body, ensure_ascii=False, default=str).encode()


class JsonObjectParser(BaseParser):
    """A parser for a body that is one JSON object."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return json_object(parser_context["request"].body)


def json_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object of a request's body; an empty body is an empty object. Raises VALIDATION_ERROR."""
    try:
        value = json.loads(body.decode() or "{}")
    except (ValueError, RecursionError):  # RecursionError: nested beyond what the parser follows
        raise invalid("The request's body is not well-formed JSON.") from None
    if not isinstance(value, dict):
        raise invalid("The request's body must be a JSON object.")
    return value
