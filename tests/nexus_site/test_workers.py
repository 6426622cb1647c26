"""Which worker a request belongs to, and how connections and figures come from one process to another."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from nexus_site.serving import metrics, workers
from nexus_site.serving.workers import MOST_UNSENT, Channel, Workers, owner

KEY = "nxs_" + "0" * 47 + "7"


def request(*headers: str, target: str = "/mcp") -> bytes:
    return "\r\n".join([f"POST {target} HTTP/1.1", "Host: localhost", *headers, "", "body"]).encode()


def test_a_key_has_one_worker_wherever_it_is_shown() -> None:
    shown = [request(f"Authorization: Bearer {KEY}"), request(f"X-API-Key: {KEY}")]
    shown += [
        request(f"x-api-key: {KEY}", target=target) for target in ("/mcp/topics", "/api/v1/agents", "/ws/events/")
    ]
    shown += [request(target=f"/mcp?toolsets=a&api_key={KEY}")]
    assert {owner(each, 4) for each in shown} == {3}


@pytest.mark.parametrize(
    "other",
    [
        request(),
        request("Authorization: Bearer a-token-of-the-run"),
        request(f"x-api-key: {KEY[:-1]}"),
        request(f"x-api-key: {KEY}", f"Authorization: Bearer {KEY[:-1]}0"),
        request(f"x-api-key: {KEY}", target="/rpc"),
        request(f"x-api-key: {KEY}", target="/ws/pool/ann/"),
        request(f"x-api-key: {KEY}", target="/metrics"),
        request(target="/mcp") + f"\r\nx-api-key: {KEY}\r\n".encode(),
    ],
)
def test_all_else_belongs_to_the_first(other: bytes) -> None:
    assert owner(other, 4) == 0


@given(st.binary(max_size=300), st.integers(1, 64))
def test_any_bytes_have_an_owner(data: bytes, many: int) -> None:
    assert 0 <= owner(data, many) < many
    assert 0 <= owner(b"GET /mcp?" + data + b"\r\nx-api-key: " + data, many) < many


async def test_what_a_process_does_not_take_waits_in_order_and_within_bounds() -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sending = Channel(mine, lambda message, descriptor: None, lambda: None)
    sent = 0
    while sending.send(b"%d" % sent + b" " * 10_000):
        sent += 1
    assert sent >= MOST_UNSENT
    reading, writing = os.pipe()
    assert not sending.send(b"refused", writing)
    assert os.read(reading, 1) == b"", "who is refused is not left open"
    os.close(reading)
    received: list[int] = []
    whole = asyncio.Event()

    def take(message: bytes, descriptor: int | None) -> None:
        received.append(int(message))
        if len(received) == sent:
            whole.set()

    Channel(theirs, take, lambda: None)
    await whole.wait()
    assert received == list(range(sent))


async def test_an_open_file_goes_along_with_its_message() -> None:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arrived: asyncio.Queue[tuple[bytes, int | None]] = asyncio.Queue()
    left = asyncio.Event()
    Channel(theirs, lambda message, descriptor: arrived.put_nowait((message, descriptor)), left.set)
    sending = Channel(mine, lambda message, descriptor: None, lambda: None)
    reading, writing = os.pipe()
    assert sending.send(b"with", writing) and sending.send(b"without")
    message, descriptor = await arrived.get()
    assert message == b"with" and descriptor is not None
    os.write(descriptor, b"here")
    os.close(descriptor)
    assert os.read(reading, 10) == b"here" and os.read(reading, 10) == b"", "nobody else has it open"
    assert await arrived.get() == (b"without", None)
    mine.close()
    await left.wait()


@pytest.mark.django_db
def test_each_worker_has_its_own_series_in_the_metrics() -> None:
    metrics.REFUSED.inc()
    text = metrics.exposition({1: metrics.of_this_process().decode()}).decode()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    counted = [each for each in samples if each.name == "nexus_refused_requests_total"]
    assert [each.labels for each in counted] == [{"worker": "0"}, {"worker": "1"}]
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types)), "a family stands in one piece"


@pytest.mark.usefixtures("committed")
def test_a_hub_is_not_ready_while_a_worker_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Workers(3)
    monkeypatch.setattr(workers, "_workers", hub)
    client = Client(headers={"host": "localhost"})
    for ready, status in (({1}, 503), ({1, 2}, 200)):
        hub.ready = ready
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["data"]["checks"]["workers"]) == (status, status == 200)
