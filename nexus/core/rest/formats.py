"""One JSON object in, the envelope or a toolset's own form out, whatever is asked for."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from nexus.core.operations.errors import invalid
from nexus.core.operations.replies import ok


class OnlyJson(BaseContentNegotiation):
    """There is one representation, whatever is asked for."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        content_type = request.content_type.partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == content_type), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: Any = None) -> tuple[Any, str]:
        return renderers[0], renderers[0].media_type


class Whole(Response):
    """A response whose data is the body already, as a toolset's reply is."""


class EnvelopeRenderer(JSONRenderer):
    """Data goes out in the success envelope, unless the response is whole."""

    charset = None

    def render(self, data: Any, accepted_media_type: Any = None, renderer_context: Any = None) -> bytes:
        body = data if isinstance((renderer_context or {}).get("response"), Whole) else ok(data)
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
