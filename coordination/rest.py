"""What Django REST framework is told of us: who asks, one JSON object in, the envelope out, whatever goes wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import APIException, MethodNotAllowed, UnsupportedMediaType, ValidationError
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from coordination import runner
from coordination.access import Approach, identify
from coordination.errors import Code, NexusError, failure, invalid, ok
from coordination.operation import Caller

STATUS: Mapping[Code, int] = {
    Code.WORKSPACE_REQUIRED: 400,
    Code.WORKSPACE_UNRESOLVED: 400,
    Code.WORKSPACE_MISMATCH: 404,
    Code.VALIDATION_ERROR: 400,
    Code.NOT_FOUND: 404,
    Code.NOT_OWNER: 403,
    Code.INVALID_TRANSITION: 409,
    Code.INVALID_STREAM: 400,
    Code.HANDOFF_ALREADY_CLAIMED: 409,
    Code.NOT_ELIGIBLE_TO_CLAIM: 403,
    Code.CONTENT_TOO_LARGE: 413,
    Code.PATH_OUTSIDE_WORKSPACE: 400,
    Code.CONFIG_ERROR: 409,
    Code.MIGRATION_ERROR: 500,
    Code.DB_ERROR: 503,
    Code.RENDER_ERROR: 500,
    Code.MIGRATED: 410,
    Code.INTERNAL_ERROR: 500,
}
CODE_OF_STATUS = {401: Code.NOT_OWNER, 403: Code.NOT_OWNER, 404: Code.NOT_FOUND, 413: Code.CONTENT_TOO_LARGE}


def status_of(envelope: Mapping[str, Any], success: int = 200) -> int:
    """The HTTP status that fits an envelope."""
    return success if envelope["ok"] else STATUS[Code(envelope["error"]["code"])]


def on_error(exception: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's exception handler: whatever went wrong is answered in the envelope."""
    response = Response(*explain(exception))
    if isinstance(exception, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(context["view"].allowed_methods)
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.exception = True
    return response


def explain(exception: Exception) -> tuple[dict[str, Any], int]:
    """The failure envelope and the HTTP status of any exception."""
    error, status = _documented(exception)
    return failure(error), status


def _documented(exception: Exception) -> tuple[NexusError, int]:
    if isinstance(exception, Http404):
        exception = NexusError(Code.NOT_FOUND, "No such resource, or none that you may see.")
    elif isinstance(exception, PermissionDenied):
        exception = NexusError(Code.NOT_OWNER, "You may not do this.")
    elif isinstance(exception, RequestDataTooBig):
        exception = NexusError(Code.CONTENT_TOO_LARGE, "The request's body is too large.")
    elif isinstance(exception, ValidationError):
        fields = exception.detail if isinstance(exception.detail, dict) else {"body": exception.detail}
        told = "; ".join(f"{name}: {' '.join(map(str, why))}" for name, why in fields.items())
        exception = invalid(told, fields={name: [str(text) for text in why] for name, why in fields.items()})
    elif isinstance(exception, UnsupportedMediaType):
        return invalid("Send JSON, with the header Content-Type: application/json."), exception.status_code
    elif isinstance(exception, APIException):
        code = CODE_OF_STATUS.get(exception.status_code, Code.VALIDATION_ERROR)
        return NexusError(code, str(exception.detail)), exception.status_code
    error = runner.documented(exception)
    return error, getattr(error, "status", STATUS[error.code])


class CallerAuthentication(BaseAuthentication):
    """`request.auth` is the Caller; a connection that is nobody's is refused before any view runs."""

    def authenticate(self, request: Request) -> tuple[Any, Caller]:
        plain = request._request
        try:
            return getattr(plain, "user", None), identify(Approach.of_request(plain), transport="rest")
        except NexusError:
            cast(Any, request)._not_authenticated()  # so that rendering the refusal does not ask again
            raise


class OnlyJson(BaseContentNegotiation):
    """There is one representation, whatever is asked for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        content_type = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == content_type), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


class EnvelopeRenderer(JSONRenderer):
    """Data goes out in the success envelope; a view that has an envelope passes it through."""

    charset = None

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        body = data if isinstance(data, dict) and "ok" in data else ok(data)
        return json.dumps(body, ensure_ascii=False, default=str).encode()


class JsonObjectParser(BaseParser):
    """A body is one JSON object."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        return json_object(parser_context["request"]._request.body)


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object of a request's body; an empty body is an empty object. Raises VALIDATION_ERROR."""
    try:
        value = json.loads(body.decode() or "{}")
    except (ValueError, RecursionError):  # RecursionError: nested beyond what the parser follows
        raise invalid("The request's body is not well-formed JSON.") from None
    if not isinstance(value, dict):
        raise invalid("The request's body must be a JSON object.")
    return value


# What Django answers where no view of ours comes to it


def _in_envelope(request: HttpRequest, error: NexusError, status: int) -> HttpResponse | None:
    return JsonResponse(failure(error), status=status) if request.path.startswith("/api/") else None


def unknown(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler404."""
    error = NexusError(Code.NOT_FOUND, "There is nothing at this path; /api/v1/schema lists what there is.")
    return _in_envelope(request, error, 404) or defaults.page_not_found(request, exception)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """handler400: a foreign Host, a malformed request."""
    error = invalid("The request is malformed, or its Host is not served here.")
    return _in_envelope(request, error, 400) or defaults.bad_request(request, exception)


def broken(request: HttpRequest) -> HttpResponse:
    """handler500."""
    error = NexusError(Code.INTERNAL_ERROR, "An unexpected internal error occurred.")
    return _in_envelope(request, error, 500) or defaults.server_error(request)
