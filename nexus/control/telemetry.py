"""Spans of the pool's runs, by OpenTelemetry's GenAI conventions, exported where the operator sets its variables.

A run is `invoke_agent`; below it are `chat` for each request to a model, and `execute_tool` for each call of a tool. No
span has prompts, answers, arguments or paths. The SDK exports on a thread of its own, from a bounded queue.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from nexus.control.models import Role, Turn, TurnStatus
from nexus.control.runners.configuration import Model
from nexus.control.services import transcript
from nexus.core.installation import needs_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.trace import Span, Tracer

    from nexus.control.services.turns import Ended

log = logging.getLogger(__name__)

PREFIX = "OTEL_"  # how the standard variables begin
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
STOP_SECONDS = 3.0  # for the last spans to be exported
PROVIDERS = {  # whose name in the conventions is not that in runners.toml
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "grok": "x_ai",
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
TOOL = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # a name; what else a model may call a tool could be anything

_provider: TracerProvider | None = None


def is_wanted() -> bool:
    """Return whether the standard variables ask for spans."""
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporter := os.environ.get("OTEL_TRACES_EXPORTER", "").strip():
        return exporter.lower() != "none"
    return any(os.environ.get(name) for name in ENDPOINTS)


def start() -> None:
    """Begin to export, if that is wanted. If it cannot be done, one line in the log says why."""
    global _provider
    if not is_wanted():
        return
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if exporter not in ("", "otlp"):
        log.warning("Runs are not traced: OTEL_TRACES_EXPORTER is %r, and Nexus exports `otlp` alone.", exporter[:100])
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        log.warning("Runs are not traced, though OTEL_… asks for that. %s.", needs_extra("Tracing", "otel"))
        return
    is_named = "OTEL_SERVICE_NAME" in os.environ or "service.name" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    try:
        resource = Resource.create({} if is_named else {"service.name": "nexus"})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(cast("SpanExporter", Exporter(OTLPSpanExporter()))))
    except Exception as error:  # of a variable's value
        log.warning("Runs are not traced: an OTEL_… variable is wrong (%s).", error)
        return
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each attempt, some with a traceback
    _provider = provider


class Exporter:
    """Exports through another exporter; while the collector takes no spans, one line in the log says so."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner, self._is_away = inner, False
        self._lock = threading.Lock()  # the SDK's own thread exports beside whoever flushes

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export spans. A failure drops them."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            result, why = self._inner.export(spans), "the collector takes none; is it there?"
        except Exception as error:
            result, why = SpanExportResult.FAILURE, f"{type(error).__name__}: {error}"
        is_away = result is not SpanExportResult.SUCCESS
        with self._lock:
            was_away, self._is_away = self._is_away, is_away
        if is_away and not was_away:
            log.warning("Spans of runs are not exported, and are dropped until that is possible: %s", why)
        elif was_away and not is_away:
            log.warning("Spans of runs are exported again.")
        return result

    def shutdown(self) -> None:
        """End the exporter."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what waits."""
        return self._inner.force_flush(timeout_millis)


def stop() -> None:
    """Export the last spans, within a bounded time."""
    global _provider
    if _provider is not None:
        # The SDK waits for a collector longer than the worker's end may take.
        stopping = threading.Thread(target=_provider.shutdown, daemon=True)
        _provider = None
        stopping.start()
        stopping.join(STOP_SECONDS)


class RunTrace:
    """The spans of one run; without a tracer there are none."""

    def __init__(self, turn: Turn | None = None, runner: object = None) -> None:
        self._tracer: Tracer | None = None
        self._calls: dict[
            str, tuple[str, list[int]]
        ] = {}  # by the call's id: its tool, and when its entry's next began
        if _provider is None or turn is None:
            return
        from opentelemetry.trace import set_span_in_context

        self._tracer = _provider.get_tracer("nexus")
        self._model = _model_of(runner)
        agent = turn.agent
        self._span: Span = self._tracer.start_span(
            f"invoke_agent {agent.agent_id}",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": agent.agent_id,
                "gen_ai.agent.id": str(agent.pk),
                "gen_ai.conversation.id": str(agent.pk),  # an agent has one transcript
                "nexus.run.id": turn.pk,
                **self._model,
            },
        )
        self._context = set_span_in_context(self._span)

    @contextmanager
    def chat(self) -> Iterator[Chat]:
        """Record a request to the model."""
        if self._tracer is None:
            yield Chat(None)
            return
        from opentelemetry.trace import SpanKind

        span = self._tracer.start_span(
            f"chat {self._model.get('gen_ai.request.model', '')}".strip(),
            self._context,
            SpanKind.CLIENT,
            {"gen_ai.operation.name": "chat", **self._model},
        )
        try:
            yield Chat(span)
        except BaseException as error:
            _fail(span, type(error).__name__)
            raise
        finally:
            span.end()

    def look(self, role: Role, tool_call_id: str | None, meta: Mapping[str, Any] | None) -> None:
        """Record the calls of tools by the entries that tell of them. Calls of one entry are done one after another."""
        if self._tracer is None:
            return
        entry = [time.time_ns()]
        for call in transcript.tool_calls(meta):
            # The name of an agent process's call is a title, which may have a path or a command.
            name = str(call.get("kind") or call["name"])
            self._calls[call["id"]] = (name if TOOL.fullmatch(name) else "unknown", entry)
        if role == Role.TOOL and tool_call_id in self._calls:
            self._end_call(tool_call_id, "tool_error" if (meta or {}).get("status") == "failed" else "")

    def _end_call(self, call_id: str, error: str) -> None:
        assert self._tracer is not None
        name, began = self._calls.pop(call_id)
        span = self._tracer.start_span(
            f"execute_tool {name}",
            self._context,
            start_time=began[0],
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.tool.call.id": call_id,
            },
        )
        began[0] = time.time_ns()
        if error:
            _fail(span, error)
        span.end(began[0])

    def end(self, ended: Ended | None) -> None:
        """Record the end of the run; None: it was broken off."""
        if self._tracer is None:
            return
        for call_id in list(self._calls):
            self._end_call(call_id, "unanswered")
        if ended is not None:
            _use(self._span, ended.input_tokens, ended.output_tokens)
            self._span.set_attribute("nexus.run.status", str(ended.status))
        if ended is None or ended.status == TurnStatus.FAILED:
            _fail(self._span, str(ended.fault.kind) if ended and ended.fault else "run_failed")
        self._span.end()


class Chat:
    """A request to a model."""

    def __init__(self, span: Span | None) -> None:
        self._span = span

    def used(self, input_tokens: int, output_tokens: int) -> None:
        """Record the tokens of its answer."""
        if self._span is not None:
            _use(self._span, input_tokens, output_tokens)


def _model_of(runner: object) -> dict[str, str]:
    if not isinstance(runner, Model):
        return {}
    provider, _, name = runner.model.partition(":")
    return {"gen_ai.provider.name": PROVIDERS.get(provider, provider), "gen_ai.request.model": name}


def _use(span: Span, input_tokens: int | None, output_tokens: int | None) -> None:
    if input_tokens or output_tokens:  # 0 of both: it did not say
        span.set_attribute("gen_ai.usage.input_tokens", input_tokens or 0)
        span.set_attribute("gen_ai.usage.output_tokens", output_tokens or 0)


def _fail(span: Span, error: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)
