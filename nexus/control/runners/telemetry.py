"""Spans of the pool's runs, exported where the operator sets OpenTelemetry's variables.

A run is one span, `invoke_agent`. Requests to a model are spans of pydantic-ai below it. No span has prompts, answers
or arguments. The SDK exports on a thread of its own, from a bounded queue.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nexus.control.models import Turn, TurnStatus
from nexus.core.installation import needs_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from pydantic_ai.models import Model

    from nexus.control.agents.turns import Ended

log = logging.getLogger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
STOP_SECONDS = 3.0  # for the last spans to be exported

_provider: TracerProvider | None = None


def start() -> None:
    """Begin to export, if a variable names a collector. If it cannot be done, one line in the log says why."""
    global _provider
    is_wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "otlp"
    if not is_wanted or not any(map(os.environ.get, ENDPOINTS)):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": "nexus"}).merge(OTELResourceDetector().detect())
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    except ImportError:
        log.warning("Runs are not traced, though OTEL_… asks for that. %s.", needs_extra("Tracing", "otel"))
    except ValueError as error:
        log.warning("Runs are not traced: an OTEL_… variable is wrong (%s).", error)
    else:
        logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # each retry would be a warning
        _provider = provider


def stop() -> None:
    """Export the last spans, within a bounded time."""
    global _provider
    if _provider is not None:
        # The SDK waits for a collector longer than the worker's end may take.
        stopping = threading.Thread(target=_provider.shutdown, name="last-spans", daemon=True)
        _provider = None
        stopping.start()
        stopping.join(STOP_SECONDS)


@contextmanager
def run_span(turn: Turn) -> Iterator[Callable[[Ended], None]]:
    """Record a run within the block, if runs are traced. The function that it yields records how the run ended."""
    if _provider is None:
        yield lambda ended: None
        return
    from opentelemetry.trace import StatusCode

    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": turn.agent.agent_id,
        "gen_ai.agent.id": str(turn.agent.pk),
        "gen_ai.conversation.id": str(turn.agent.pk),  # an agent has one transcript
        "nexus.run.id": turn.pk,
    }
    with _provider.get_tracer("nexus").start_as_current_span(
        f"invoke_agent {turn.agent.agent_id}",
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,  # its description would be the error's text
    ) as span:

        def record(ended: Ended) -> None:
            if ended.input_tokens or ended.output_tokens:  # 0 of both: it did not say
                span.set_attribute("gen_ai.usage.input_tokens", ended.input_tokens or 0)
                span.set_attribute("gen_ai.usage.output_tokens", ended.output_tokens or 0)
            span.set_attribute("nexus.run.status", str(ended.status))
            if ended.status == TurnStatus.FAILED:
                span.set_attribute("error.type", str(ended.fault.kind) if ended.fault else "run_failed")
                span.set_status(StatusCode.ERROR)

        yield record


def traced(model: Model) -> Model:
    """Return a model whose requests are spans, if runs are traced."""
    if _provider is None:
        return model
    from pydantic_ai.models.instrumented import InstrumentationSettings, InstrumentedModel

    settings = InstrumentationSettings(
        tracer_provider=_provider, include_content=False, include_model_request_parameters=False
    )
    return InstrumentedModel(model, settings)
