"""Spans of runs, as a collector gets them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from nexus.control.agents.turns import Ended
from nexus.control.runners import telemetry
from nexus.control.runners.base import Scene
from nexus.control.runners.processes import environment_of
from nexus.control.worker import supervision
from nexus.control.worker.scheduling import Worker
from nexus.core import processes
from nexus.core.waiting import WRITERS, in_thread
from tests.acceptance.hub import serving as serving_hub
from tests.acceptance.processes import nexus
from tests.conftest import Furnish
from tests.control.openai_server import calls, refuses, says, serving
from tests.control.pool import Take, acancel, acreate, asend, create, ended
from tests.control.test_retries import own_home, run_with

__all__ = ["own_home"]

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PRIVATE = ("Read it.", "notes.txt", "one\\n", "At last.")


class Collector(ThreadingHTTPServer):
    """What was exported to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.bodies: list[bytes] = []
        self.exported = threading.Event()
        self.service = ""
        self.silent = threading.Event()  # set: it does not answer before `over`
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[Any]:
        found = []
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.service = attributes(resource.resource)["service.name"]
                found += [span for scope in resource.scope_spans for span in scope.spans]
        return found


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
        self.server.bodies.append(self.rfile.read(int(self.headers["content-length"])))
        self.server.exported.set()
        if self.server.silent.is_set():
            self.server.over.wait()
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    yield
    telemetry.stop()


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv(ENDPOINT, server.url)
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.usefixtures("starts_processes")
async def test_a_run_over_a_model(worker: Worker, tmp_path: Path, collector: Collector) -> None:
    telemetry.start()
    reads = calls(("read_file", {"path": "notes.txt"}))
    with serving(refuses(503, retry_after="0"), reads, says("At last.", usage=(20, 7))) as (_, url):
        turn = await ended(await run_with(url, tmp_path))
    assert turn.status == "done", turn.why
    telemetry.stop()
    spans = collector.spans()
    assert collector.service == "nexus"
    first, root = (span for span in spans if not span.parent_span_id)  # the run waited and was started again
    assert (root.name, attributes(first)["error.type"]) == ("invoke_agent ann", "overloaded")
    given = attributes(root)
    assert given.pop("gen_ai.agent.id") == given.pop("gen_ai.conversation.id")
    assert given == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "ann",
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 12,
        "nexus.run.id": turn.pk,
        "nexus.run.status": "done",
    }
    assert [span.name for span in spans if span.parent_span_id == first.span_id] == ["chat small"], "it was refused"
    below = [span for span in spans if span.parent_span_id == root.span_id]
    assert {span.trace_id for span in below} == {root.trace_id}
    assert [span.name for span in below] == ["chat small", "chat small"]
    assert [attributes(span)["gen_ai.usage.input_tokens"] for span in below] == [10, 20]
    sent = b"".join(collector.bodies)
    assert not [text for text in (*PRIVATE, str(tmp_path)) if text.encode() in sent]


@pytest.mark.usefixtures("starts_processes")
async def test_runs_that_fail_or_are_cancelled(
    worker: Worker, plays: Callable[[Take], None], collector: Collector
) -> None:
    telemetry.start()
    began = asyncio.Event()

    async def take(runner: Any, scene: Scene) -> Ended:
        if scene.agent.agent_id == "bob":
            raise ValueError("a secret")
        began.set()
        await asyncio.Event().wait()
        raise AssertionError

    plays(take)
    await acreate("ann", "bob")
    cancelled, failed = await asend("ann"), await asend("bob")
    await began.wait()
    await acancel(cancelled)
    await ended(cancelled)
    await ended(failed)
    telemetry.stop()
    runs = {given["gen_ai.agent.name"]: given for given in map(attributes, collector.spans())}
    assert (runs["bob"]["nexus.run.status"], runs["bob"]["error.type"]) == ("failed", "run_failed")
    assert runs["ann"]["nexus.run.status"] == "cancelled" and "error.type" not in runs["ann"]
    assert b"secret" not in b"".join(collector.bodies)


@pytest.mark.usefixtures("starts_processes")
async def test_a_collector_that_does_not_answer_holds_up_neither_runs_nor_the_end(
    worker: Worker, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setattr(telemetry, "STOP_SECONDS", 0.2)
    collector.silent.set()
    telemetry.start()
    await acreate("ann")
    for _ in range(3):
        assert (await ended(await asend("ann"))).status == "done"
    telemetry.stop()  # returns although the collector has not answered
    [stopping] = [thread for thread in threading.enumerate() if thread.name == "last-spans"]
    collector.over.set()
    await asyncio.to_thread(stopping.join)  # before the collector is gone


@pytest.mark.usefixtures("starts_processes")
def test_without_the_variables_nothing_is_imported() -> None:
    script = """
import json, os, sys, django
django.setup()
from nexus.control.runners import telemetry
for variables in json.loads(sys.argv[1]):
    os.environ |= variables
    telemetry.start()
    with telemetry.run_span(object()) as record:
        record(object())
    telemetry.traced(object())
    telemetry.stop()
    print(variables, [name for name in sys.modules if name.startswith("opentelemetry")])
"""
    each = [{}, {ENDPOINT: ""}, {ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}]
    env = processes.own_environment(DJANGO_SETTINGS_MODULE="tests.settings")
    command = [sys.executable, "-c", script, json.dumps(each)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("".join(f"{variables} []\n" for variables in each), "")


@pytest.mark.parametrize(
    ("variables", "missing", "said"),
    [
        ({ENDPOINT: "http://127.0.0.1:1"}, True, "the extra otel: "),
        ({ENDPOINT: "http://127.0.0.1:1", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, False, "variable is wrong"),
    ],
)
def test_what_cannot_be_done_is_one_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    missing: bool,
    said: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if missing:
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with caplog.at_level(logging.WARNING, "nexus"):
        telemetry.start()
    lines = [record.getMessage() for record in caplog.records if record.name == "nexus.control.runners.telemetry"]
    assert len(lines) == 1 and said in lines[0]


async def test_the_variables_reach_the_worker_and_no_program_of_an_agent(
    committed: None, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(control=True, home=tmp_path)
    monkeypatch.setenv(ENDPOINT, "http://collector")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret")
    agent = await in_thread(WRITERS, lambda: create("ann", cwd=str(tmp_path)))
    worker = supervision._environment()
    assert (worker[ENDPOINT], worker["OTEL_EXPORTER_OTLP_HEADERS"]) == ("http://collector", "authorization=secret")
    for given in (environment_of(agent), processes.own_environment(), processes.environment()):
        assert not [name for name in given if name.startswith("OTEL_")]


@pytest.mark.usefixtures("starts_processes")
def test_the_spans_of_a_hub_that_ends_are_exported(furnish: Furnish, tmp_path: Path, collector: Collector) -> None:
    with serving_hub(furnish(tmp_path / "home"), "--control") as hub:
        for words in (["create", "ann", "--cwd", str(tmp_path)], ["send", "ann", "hello"]):
            assert nexus(hub.home, "rpc", *words).returncode == 0
        hub.stop()
    assert collector.exported.is_set()
    assert [span.name for span in collector.spans()] == ["invoke_agent ann"]
