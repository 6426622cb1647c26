"""Whatever goes wrong below /api/ is answered in the envelope, or its toolset's form, with its code's status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views import defaults
from rest_framework.exceptions import APIException, MethodNotAllowed, UnsupportedMediaType, ValidationError
from rest_framework.response import Response

from nexus.core.operations import runner
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.operations.replies import ENVELOPE, Outcome, Reply, failure
from nexus.core.rest.formats import Whole

CODE_OF_STATUS = {401: Code.NOT_OWNER, 403: Code.NOT_OWNER, 404: Code.NOT_FOUND, 413: Code.CONTENT_TOO_LARGE}


def on_error(exception: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's exception handler: whatever went wrong is answered in the form of the view's toolset."""
    toolset = getattr(context["view"], "toolset", None)
    response = Whole(*explain(exception, toolset.reply if toolset else ENVELOPE))
    if isinstance(exception, MethodNotAllowed):
        response.headers["Allow"] = ", ".join(context["view"].allowed_methods)
    if response.status_code == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    response.exception = True
    return response


def explain(exception: Exception, reply: Reply = ENVELOPE) -> tuple[dict[str, Any], int]:
    """The body and the HTTP status of any exception."""
    error, status = _documented(exception)
    return reply.body(Outcome(error=error)), status


def refusal(exception: Exception) -> JsonResponse:
    """The answer of a view that is not DRF's."""
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
        told = "; ".join(f"{name}: {' '.join(map(str, why))}" for name, why in fields.items())
        exception = invalid(told, fields={name: [str(text) for text in why] for name, why in fields.items()})
    elif isinstance(exception, UnsupportedMediaType):
        return invalid("Send JSON, with the header Content-Type: application/json."), exception.status_code
    elif isinstance(exception, APIException):
        code = CODE_OF_STATUS.get(exception.status_code, Code.VALIDATION_ERROR)
        return NexusError(code, str(exception.detail)), exception.status_code
    error = runner.documented(exception)
    return error, Outcome(error=error).status


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
