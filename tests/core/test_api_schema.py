"""The API against its own OpenAPI schema: whatever is sent, the status and the shape of the answer are documented."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import schemathesis
from django.conf import settings as django_settings
from django.core.wsgi import get_wsgi_application
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
CONFIG = SchemathesisConfig.from_dict({"generation": {"with-security-parameters": False}})


def local(application: Callable[..., Any]) -> Callable[..., Any]:
    """The application as a direct local request reaches it."""

    def called(environ: dict[str, Any], start_response: Any) -> Any:
        return application({**environ, "REMOTE_ADDR": "127.0.0.1", "HTTP_HOST": "localhost"}, start_response)

    return called


schema = schemathesis.openapi.from_wsgi("/api/v1/schema", local(get_wsgi_application()), config=CONFIG)


@pytest.fixture(autouse=True)
def impatient(transactional_db: None, committed: None, settings: Any) -> None:
    """No call waits; and what is written is committed, because waiting operations use threads."""
    settings.NEXUS = replace(django_settings.NEXUS, max_wait_timeout_seconds=0)


OPERATIONS: list[Any] = [
    cast(Any, found).ok() for found in schema.exclude(path="/api/v1/stream").get_all_operations()
]  # it never ends


@pytest.mark.parametrize("operation", OPERATIONS, ids=[operation.label for operation in OPERATIONS])
def test_it_answers_as_documented(operation: Any) -> None:
    @given(operation.as_strategy())
    @settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
    def holds(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(checks=CHECKS)

    holds()


def test_it_documents_every_operation_and_list() -> None:
    assert len(OPERATIONS) > 75
