"""The API against its own OpenAPI schema: whatever is sent, the status and the shape of the answer are documented."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.conf import settings as django_settings
from django.core.wsgi import get_wsgi_application
from django.test import Client
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings
from pytest_django import DjangoDbBlocker
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from typing_extensions import TypedDict

from nexus.core.operations.registry import TOOLSETS, operations
from nexus.core.rest.schema import reference
from tests.conftest import examples

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CONFIG = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})


def local(application: Callable[..., Any]) -> Callable[..., Any]:
    """The application as a direct local request reaches it."""

    def called(environ: dict[str, Any], start_response: Any) -> Any:
        return application({**environ, "REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "localhost"}, start_response)

    return called


@pytest.fixture(scope="module")
def schema(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Any:
    """The schema, which takes a second to make."""
    with django_db_blocker.unblock():
        return schemathesis.openapi.from_wsgi("/api/v1/schema", local(get_wsgi_application()), config=CONFIG)


@pytest.fixture(autouse=True)
def impatient(
    transactional_db: None, committed: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call waits; what is written is committed, because waiting operations use threads; and there is a pool, whose
    agents have a directory of their own."""
    settings.NEXUS = django_settings.NEXUS.replaced(max_wait_timeout_seconds=0, control=True)
    monkeypatch.chdir(tmp_path)


STREAMS = ["/api/v1/stream", "/agent/{agent_id}/stream"]  # which do not end
OF_TOOLSET = re.compile(r"/api/v1/(\w+)/operations/")


@pytest.mark.hypothesis
@pytest.mark.parametrize("toolset", [*TOOLSETS, ""])
def test_it_answers_as_documented(schema: Any, toolset: str) -> None:
    """The operations of each toolset, and what stands at no toolset's path."""
    found = [each.ok() for each in schema.exclude(path=STREAMS).get_all_operations()]
    of_toolset = [each for each in found if (OF_TOOLSET.match(each.path) or ["", ""])[1] == toolset]
    for operation in of_toolset:

        @given(operation.as_strategy())
        @settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
        def holds(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(checks=CHECKS)

        holds()


def test_it_tells_the_shape_of_every_answer(schema: Any) -> None:
    untold = [each.name for each in operations() if each.data is None and not each.accepts_anything]
    assert untold == []
    named = set(re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(schema.raw_schema)))
    assert named == set(schema.raw_schema["components"]["schemas"])
    bodies = {
        (path, method): call["responses"][status]["content"]["application/json"]["schema"]
        for path, methods in schema.raw_schema["paths"].items()
        for method, call in methods.items()
        for status in {"200", "201"} & call["responses"].keys()
        if path not in STREAMS
    }
    assert len(bodies) > 75
    bare = {path for (path, _), body in bodies.items() if "$ref" in body}
    assert bare == {
        f"/api/v1/{each.toolset.name}/operations/{each.name}" for each in operations() if each.toolset.reply.bare
    }
    answers = {call: body if "$ref" in body else body["properties"]["data"] for call, body in bodies.items()}
    assert {path for (path, _), data in answers.items() if data == {"type": "object"}} == {
        f"/api/v1/coordination/operations/message_{shim}" for shim in ("get", "list", "wait")
    }


def test_it_refuses_two_shapes_of_one_name(schema: Any) -> None:
    class ListedAgent(TypedDict):
        other: str

    with pytest.raises(ValueError, match="ListedAgent"):
        reference(ListedAgent)


def test_a_process_makes_its_schema_once(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def makes(*_: Any, **__: Any) -> None:
        raise AssertionError("it takes seconds")

    monkeypatch.setattr(SchemaGenerator, "get_schema", makes)
    answer = Client(REMOTE_ADDR="127.0.0.1", headers={"host": "localhost"}).get("/api/v1/schema")
    assert answer.status_code == 200 and "/api/v1/agents" in answer.json()["paths"]
