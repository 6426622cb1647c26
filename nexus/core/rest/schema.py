"""The OpenAPI schema: the envelope, the errors and the operations, which drf-spectacular cannot know."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.openapi import AutoSchema

from nexus.core.apps import nexus_apps
from nexus.core.operations.parameters import json_schema, shape_of
from nexus.core.operations.registry import TOOLSETS, Operation, Toolset, operations
from nexus.core.operations.replies import ENVELOPE
from nexus.core.rest.pagination import Pages

Schema = dict[str, Any]

ANY_OF: list[Schema] = [{"bearer": []}, {"header": []}, {"query": []}, {}]  # nothing: a direct local request
FAILURES = {
    "400": "An argument is wrong.",
    "401": "A key or a login is needed.",
    "403": "The caller may not do this.",
    "404": "There is no such thing, or none that the caller may see.",
    "405": "The path does not take this method.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "500": "An unexpected error; the server's log has it.",
    "503": "The store is busy or failed; details.retryable says whether to try again.",
}
CONFLICTS = {
    "409": "The state does not allow it.",
    "410": "The operation was replaced; the message names its replacement.",
}


def success(data: Schema) -> Schema:
    """Return the success envelope around `data`."""
    hint = {"type": "string", "description": "What the caller probably meant, if nothing was found."}
    properties = {"ok": {"const": True}, "data": data, "hint": hint}
    return {"type": "object", "required": ["ok", "data"], "properties": properties}


def failures(texts: dict[str, str] = FAILURES) -> Schema:
    """Return the failing responses of a path, by status."""
    reference = {"application/json": {"schema": {"$ref": "#/components/schemas/Failure"}}}
    return {status: {"description": text, "content": reference} for status, text in texts.items()}


def reference(shape: type[Any]) -> Schema:
    """Return a reference to a shape and add the shape to the schema. Raises ValueError for two shapes of one name."""
    if _shapes.setdefault(shape.__name__, shape) is not shape:
        raise ValueError(f"two shapes are called {shape.__name__}")
    return {"$ref": f"#/components/schemas/{shape.__name__}"}


_shapes: dict[str, type[Any]] = {}


def page_of(shape: type[Any]) -> Schema:
    """Return a page of rows of a shape, for `extend_schema(responses=…)`."""
    return Pages().get_paginated_response_schema({"type": "array", "items": reference(shape)})


def answer_of(operation: Operation[Any]) -> Schema:
    """Return the answer of an operation, for `extend_schema(responses=…)`."""
    return reference(operation.data) if operation.data else {"type": "object"}


def body_of(operation: Operation[Any], *in_path: str) -> Schema:
    """Return the request body of an operation without the parameters that the path holds, for
    `extend_schema(request=…)`."""
    schema = _parameters(operation, {})
    properties = {field: part for field, part in schema["properties"].items() if field not in in_path}
    required = [field for field in schema.get("required", ()) if field not in in_path]
    return {"application/json": {**schema, "properties": properties, **({"required": required} if required else {})}}


class EnvelopeSchema(AutoSchema):
    """A schema with every success in the envelope, and the failures of every path."""

    def get_description(self) -> str:  # type: ignore[override]  # as in drf-spectacular
        """Return the description; that of a list or a row is its resource's."""
        if getattr(self.view, "action", None) in ("list", "retrieve"):
            return " ".join((type(self.view).__doc__ or "").split())
        return super().get_description()

    def get_response_serializers(self) -> Any:
        """Return a row's shape as its resource is annotated; other paths declare their answers."""
        view: Any = self.view
        if not hasattr(view, "show_whole"):  # no table: what says nothing answers some object
            return {"200": {"type": "object"}}
        shape = (view.action == "retrieve" and shape_of(view.show_whole)) or shape_of(view.show)
        assert shape is not None, f"{type(self.view).__name__}.show is annotated with no shape"
        return {"200": reference(shape)}

    def get_override_parameters(self) -> list[Any]:
        return list(self.view.query_parameters()) if hasattr(self.view, "query_parameters") else []

    def get_operation(self, *args: Any, **kwargs: Any) -> Schema | None:
        """Return a path's operation with its answers in their form, and its failures."""
        operation: Schema | None = super().get_operation(*args, **kwargs)
        if operation is not None:
            operation["responses"] = self._responses(operation["responses"])
        return operation

    def _responses(self, bodies: Schema) -> Schema:
        for body in bodies.values():
            for content in body.get("content", {}).values():
                content["schema"] = success(content["schema"])
        if self.method == "GET":
            bodies["304"] = {"description": "Nothing changed since the ETag that was sent."}
        bodies |= failures(FAILURES if self.method == "GET" else {**FAILURES, **CONFLICTS})
        return _in_form(getattr(self.view, "toolset", None), bodies)


class CallerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """The ways to authenticate; a direct local request needs none."""

    target_class = "nexus.core.rest.authentication.CallerAuthentication"
    name = ["bearer", "header", "query"]

    def get_security_requirement(self, auto_schema: AutoSchema) -> Any:
        return ANY_OF

    def get_security_definition(self, auto_schema: AutoSchema) -> list[Schema]:
        return [
            {"type": "http", "scheme": "bearer", "description": "An agent's API key."},
            {"type": "apiKey", "in": "header", "name": "x-api-key"},
            {"type": "apiKey", "in": "query", "name": "api_key"},
        ]


def add_operations(result: Schema, generator: Any, **kwargs: Any) -> Schema:
    """Add the failure envelope, the apps' paths, and a path for each operation; drf-spectacular's hook."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    schemas["Failure"] = _failure()
    for app in nexus_apps():
        result["paths"].update(app.openapi_paths())
    for operation in operations():
        path = f"/api/v1/{operation.toolset.name}/operations/{operation.name}"
        result["paths"][path] = {"post": _path(operation, schemas)}
    for name, shape in _shapes.items():
        _defined({"$defs": {name: _defined(json_schema(shape), schemas)}}, schemas)
    return result


def _defined(schema: Schema, schemas: Schema) -> Schema:
    """Return a schema without its definitions, which are added to `schemas`. Raises ValueError for two of one name."""
    for name, part in schema.pop("$defs", {}).items():
        if schemas.setdefault(name, part) != part:
            raise ValueError(f"two shapes are called {name}")
    return schema


def _failure() -> Schema:
    """Return the failure envelope, with every code."""
    codes = dict.fromkeys(code.value for toolset in TOOLSETS.values() for code in toolset.codes())
    return {
        "type": "object",
        "required": ["ok", "error"],
        "properties": {
            "ok": {"const": False},
            "error": {
                "type": "object",
                "required": ["code", "message"],
                "properties": {
                    "code": {"type": "string", "enum": list(codes)},
                    "message": {"type": "string"},
                    "details": {"type": "object"},
                },
            },
        },
    }


def _path(operation: Operation[Any], schemas: Schema) -> Schema:
    parameters = _parameters(operation, schemas)
    answer = {"application/json": {"schema": success(answer_of(operation))}}
    responses = _in_form(
        operation.toolset, {"200": {"description": "Done.", "content": answer}, **failures({**FAILURES, **CONFLICTS})}
    )
    if operation.toolset.reply.bare:
        responses["200"]["content"] = {"application/json": {"schema": answer_of(operation)}}
    return {
        "operationId": f"{operation.toolset.name}_{operation.name}",
        "description": operation.description,
        "tags": ["operations"],
        "requestBody": {"content": {"application/json": {"schema": parameters}}},
        "security": ANY_OF,
        "responses": responses,
    }


def _in_form(toolset: Toolset | None, responses: Schema) -> Schema:
    """Return the responses in the toolset's form; a form other than the envelope is left open."""
    if toolset is None or toolset.reply is ENVELOPE:
        return responses
    own = {"content": {"application/json": {"schema": {"type": "object"}}}}
    return {status: {**response, **(own if "content" in response else {})} for status, response in responses.items()}


def _parameters(operation: Operation[Any], schemas: Schema) -> Schema:
    if operation.accepts_anything:
        return {"type": "object"}
    return _defined(operation.params.model_json_schema(ref_template="#/components/schemas/{model}"), schemas)
