"""Webhooks: what is sent to whom, signed; again after a failure, never for ever; and what survives a crash."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.core.management import call_command
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.strategies import ip_addresses as ipaddresses

from coordination.models import Event
from coordination.toolset import COORDINATION, run
from nexus.core.apps import event_types, nexus_apps
from nexus.core.background_work import work_forever, work_once
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from nexus.core.waiting import WRITERS
from nexus.hooks import sender, webhooks
from nexus.hooks.models import Webhook
from nexus.hooks.webhooks import MAX_ATTEMPTS, WEBHOOKS
from tests.acceptance.hub import START_SECONDS
from tests.conftest import Call
from tests.hooks.receiver import Receiver, receiver

__all__ = ["Receiver", "receiver"]  # for test_two_hubs, too


class Posted:
    """What would be sent, and the status with which it is answered."""

    url = "http://127.0.0.1:9/hook"

    def __init__(self) -> None:
        self.status = 204
        self.got: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.arrived = threading.Event()

    def post(self, url: str, body: str, headers: dict[str, str], *, allow_private: bool) -> None:
        self.got.append((headers, json.loads(body)))
        self.arrived.set()
        if self.status >= 300:
            raise sender.Undelivered(f"the receiver answered {self.status}")


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Posted:
    """Nothing is sent, but for the tests of how it is sent."""
    posted = Posted()
    monkeypatch.setattr(sender, "post", posted.post)
    return posted


@pytest.fixture
def operate(db: None) -> Call:
    """Call an operation as an operator and get its envelope."""

    def envelope(name: str, **arguments: Any) -> dict[str, Any]:
        return run(Caller("test", operator="ada"), name, arguments)

    return envelope


@pytest.fixture
def add(operate: Call, posted: Posted) -> Call:
    """Add a webhook and get its data."""

    def added(**arguments: Any) -> dict[str, Any]:
        envelope = operate("webhook_add", url=posted.url, allow_private=True, **arguments)
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    return added


def write(call: Call, project: str, to: str = "builder") -> str:
    call("agent_register", agent_id=to)
    letter = {"project_root": project, "from_agent_id": "reviewer", "subject": "s", "body": "b"}
    return str(call("message_create", **letter, target={"strategy": "direct", "agent_id": to})["message_id"])


def deliver() -> tuple[int, int]:
    """Send what is due; how many events were taken and how many failed."""
    outcomes = work_once(WEBHOOKS)
    return outcomes.count(None), len(outcomes) - outcomes.count(None)


def later(**span: int) -> Any:
    return time_machine.travel(datetime.now(UTC) + timedelta(**span))


# What is sent


def test_it_refuses_an_event_type_that_there_is_not(db: None) -> None:
    caller = Caller(transport="test", operator="ops")
    answer = run(caller, "webhook_add", {"url": "https://example.com/x", "types": ["message.created", "bogus"]})
    assert answer["error"]["code"] == "VALIDATION_ERROR" and "'bogus'" in answer["error"]["message"]
    assert "handoff.claimed" in answer["error"]["message"]


def test_every_type_that_is_written_is_declared() -> None:
    """As literals in the source: `audit.record(operator, "agent.created", …)`, `type="artifact.created"`."""
    written = {
        found
        for app in nexus_apps()
        for file in Path(app.path).rglob("*.py")
        for found in re.findall(r'(?:record\([^"]{0,60}|_emit\([^"]{0,60}|type=)"([a-z]+\.[a-z_]+)"', file.read_text())
    }
    assert {"agent.created", "session.opened", "artifact.created", "message.created"} <= written <= set(event_types())


@pytest.mark.usefixtures("starts_processes")
def test_it_sends_a_signed_event(operate: Call, call: Call, project: str, receiver: Receiver) -> None:
    webhook = {"url": receiver.url, "allow_private": True, "types": ["message.created"]}
    secret = operate("webhook_add", **webhook)["data"]["secret"]
    message_id = write(call, project)
    assert deliver() == (1, 0)
    [(headers, body)], raw = receiver.got, receiver.bodies[0].decode()
    assert (body["type"], body["data"]["payload"]["message_id"]) == ("message.created", message_id)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.{raw}".encode()
    key = base64.b64decode(secret.removeprefix("whsec_"))
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert deliver() == (0, 0)


def test_it_sends_nothing_from_before_it_was_added(add: Call, call: Call, project: str, posted: Posted) -> None:
    write(call, project)
    add(types=["message.created"])
    assert deliver() == (0, 0)


def test_it_sends_an_agent_only_what_concerns_it(add: Call, call: Call, project: str, posted: Posted) -> None:
    write(call, project, to="builder")
    add(agent_id="builder")
    write(call, project, to="other")
    mine = write(call, project, to="builder")
    offer = {"project_root": project, "from_agent_id": "x", "visibility": "private"}
    call("handoff_create", target={"strategy": "role", "role": "tester"}, **offer)
    call("handoff_create", target={"strategy": "direct", "agent_id": "builder"}, **offer)
    deliver()
    kinds = [(body["type"], body["data"]["payload"].get("message_id")) for _, body in posted.got]
    assert kinds[0] == ("message.created", mine)
    assert sorted(kind for kind, _ in kinds[1:]) == ["handoff.created", "message.created"]  # the offer and its notice


def test_it_sends_only_its_workspace(
    add: Call, call: Call, project: str, tmp_path_factory: pytest.TempPathFactory, posted: Posted
) -> None:
    elsewhere = str(tmp_path_factory.mktemp("elsewhere"))
    add(project_root=project, types=["message.created"])
    write(call, elsewhere)
    write(call, project)
    assert deliver() == (1, 0)


# Failures


def test_it_tries_again_later_and_later(add: Call, call: Call, project: str, posted: Posted) -> None:
    add(types=["message.created"])
    write(call, project)
    posted.status = 500
    assert deliver() == (0, 1)
    assert deliver() == (0, 0)
    with later(seconds=31):
        assert deliver() == (0, 1)
    with later(seconds=31 + 60):
        assert deliver() == (0, 0)
    with later(seconds=31 + 121):
        posted.status = 204
        assert deliver() == (1, 0)
    assert len({headers["webhook-id"] for headers, _ in posted.got}) == 1


def test_it_gives_an_event_up_after_a_day(add: Call, call: Call, operate: Call, project: str, posted: Posted) -> None:
    add(types=["message.created"])
    messages = [write(call, project), write(call, project)]
    posted.status = 410
    for hour in range(MAX_ATTEMPTS + 3):
        with later(hours=hour):
            deliver()
    assert [body["data"]["payload"]["message_id"] for _, body in posted.got[MAX_ATTEMPTS - 1 :]] == [
        messages[0],
        *3 * [messages[1]],
    ]
    (listed,) = operate("webhook_list")["data"]["webhooks"]
    assert (listed["given_up"], listed["last_error"]) == (1, "the receiver answered 410")


def test_it_is_tried_again_at_once_when_told(
    add: Call, call: Call, operate: Call, project: str, posted: Posted
) -> None:
    webhook_id = add(types=["message.created"])["webhook_id"]
    write(call, project)
    posted.status = 500
    assert deliver() == (0, 1)
    posted.status = 200
    assert deliver() == (0, 0)
    assert operate("webhook_redeliver", webhook_id=webhook_id)["ok"]
    assert deliver() == (1, 0)
    assert operate("webhook_list")["data"]["webhooks"][0]["last_error"] is None


@pytest.mark.usefixtures("starts_processes")
def test_it_follows_no_redirect(receiver: Receiver) -> None:
    receiver.status = 307
    with pytest.raises(sender.Undelivered, match="the receiver answered 307"):
        sender.post(receiver.url, "{}", {}, allow_private=True)
    assert len(receiver.got) == 1


def test_it_sends_again_what_a_crash_left_unsettled(add: Call, call: Call, project: str, posted: Posted) -> None:
    webhook_id = add(types=["message.created"])["webhook_id"]
    write(call, project)
    taken = WEBHOOKS.claim(webhook_id)
    assert taken is not None and WEBHOOKS.claim(webhook_id) is None  # and here its process dies
    with later(seconds=31):
        assert deliver() == (1, 0)
    assert posted.got[0][0]["webhook-id"] == taken.delivery_id


def test_it_sends_in_order_what_waited(add: Call, call: Call, project: str, posted: Posted) -> None:
    add(types=["message.created"])
    sent = [write(call, project) for _ in range(5)]
    posted.status = 500
    assert deliver() == (0, 1)
    posted.status = 200
    with later(seconds=31):
        assert deliver() == (5, 0)
    assert [body["data"]["payload"]["message_id"] for _, body in posted.got[1:]] == sent


def test_it_catches_up_a_little_at_a_time(
    add: Call, call: Call, project: str, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A webhook that is far behind does not hold up the other writers of its process."""
    monkeypatch.setattr(webhooks, "EVENTS_AT_ONCE", 1)
    monkeypatch.setattr(webhooks, "LOOKS", 2)
    webhook_id = add(types=["artifact.created"])["webhook_id"]
    begin = Webhook.objects.get().cursor
    for _ in range(5):
        write(call, project)
    behind = Event.objects.filter(event_id__gt=begin).order_by("event_id").values_list("event_id", flat=True)

    assert WEBHOOKS.claim(webhook_id) is None
    assert Webhook.objects.get().cursor == behind[1]
    assert WEBHOOKS.claim(webhook_id) is None
    assert Webhook.objects.get().cursor == behind[3]

    assert deliver() == (0, 0)
    assert Webhook.objects.get().cursor == Event.objects.latest("event_id").event_id


def test_a_failing_receiver_is_paused_whatever_happens(add: Call, call: Call, project: str, posted: Posted) -> None:
    add(types=["message.created"])
    posted.status = 500
    for count, pause in enumerate([30, 120, 600], 1):
        write(call, project)
        assert deliver() == (0, 1)
        write(call, project)
        assert deliver() == (0, 0)
        webhook = Webhook.objects.get()
        assert webhook.failures == count and webhook.next_attempt_at is not None
        assert (webhook.next_attempt_at - now()).total_seconds() == pytest.approx(pause, abs=29)
        Webhook.objects.update(next_attempt_at=now())
    posted.status = 200
    assert deliver()[1] == 0
    assert (Webhook.objects.get().failures, Webhook.objects.get().next_attempt_at) == (0, None)


def test_a_clock_that_was_a_day_ahead_puts_no_delivery_off(add: Call, call: Call, project: str, posted: Posted) -> None:
    add(types=["message.created"])
    with later(days=1):
        write(call, project)
        posted.status = 500
        assert deliver() == (0, 1)
        posted.status = 204
    with later(seconds=2):  # the next look for what to end
        call("agent_get", agent_id="builder")
        assert deliver() == (1, 0)


@pytest.mark.usefixtures("starts_processes")
def test_receivers_that_never_answer_leave_half_of_the_threads(
    committed: None, call: Call, operate: Call, project: str, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "STEP_SECONDS", 120)
    monkeypatch.setattr(sender, "TOTAL_SECONDS", 120)
    operate("webhook_add", url=receiver.url, allow_private=True, types=["message.created"])
    write(call, project)
    taken: list[socket.socket] = []
    accepted = threading.Semaphore(0)

    async def serve(silent: socket.socket) -> None:
        loop = asyncio.get_running_loop()

        def said() -> None:
            receiver.arrived.clear()
            write(call, project)

        task = asyncio.create_task(work_forever(WEBHOOKS))
        assert await asyncio.to_thread(receiver.arrived.wait, 60)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        for _ in range(16):
            await loop.run_in_executor(WRITERS, lambda: operate("webhook_add", url=url, allow_private=True))
        for _ in range(3):
            await loop.run_in_executor(WRITERS, said)
            assert await asyncio.to_thread(receiver.arrived.wait, 60)
            if not taken:
                for _ in range(WEBHOOKS.threads // 2):
                    assert await asyncio.to_thread(accepted.acquire, True, 60)
        await asyncio.to_thread(ends, silent)
        task.cancel()

    def ends(silent: socket.socket) -> None:
        silent.close()
        for each in taken:
            each.close()

    def accept(silent: socket.socket) -> None:
        while True:
            try:
                taken.append(silent.accept()[0])
            except OSError:
                return
            accepted.release()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        threading.Thread(target=accept, args=[silent], daemon=True).start()
        asyncio.run(serve(silent))
    assert len(receiver.got) >= 4
    assert len(taken) == WEBHOOKS.threads // 2


def test_it_delivers_in_the_background(committed: None, add: Call, call: Call, project: str, posted: Posted) -> None:
    add(types=["message.created"])

    async def serve() -> None:
        task = asyncio.create_task(work_forever(WEBHOOKS))
        await asyncio.get_running_loop().run_in_executor(WRITERS, lambda: write(call, project))
        assert await asyncio.to_thread(posted.arrived.wait, START_SECONDS)
        task.cancel()

    asyncio.run(serve())
    assert posted.got[0][1]["type"] == "message.created"


# Where it may not go


NO_URLS = [
    *("ftp://example.com/", "example.com", "http://", "http:///x", "http://user:secret@example.com/", "http://[::1/"),
    *("http://example.com:99999/", "http://example.com:0/", "http://exa mple.com/", "http://ex\u00e4mple.com/"),
    "http://example.com/\r\nx-evil: 1",
]
NOT_PUBLIC = """
    127.0.0.1 127.8.9.1:80 10.0.0.1 169.254.169.254 192.168.1.1 100.64.0.1 0.0.0.0 224.0.0.1 192.0.0.9 192.88.99.1
    [::1] [::] [fe80::1] [fd00::1] [fec0::1] [5f00::1] [3fff::1] [100:0:0:1::1] [::ffff:127.0.0.1] [64:ff9b::7f00:1]
    [2002:7f00:1::] [::127.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b:1::7f00:1] [2001:0:808:808::80ff:fffe]
    [2001:0:7f00:1::f7f7:f7f7] [2a00:1450::5efe:7f00:1]
""".split()


@pytest.mark.parametrize("url", [*NO_URLS, *(f"http://{host}/" for host in NOT_PUBLIC)])
def test_it_refuses_an_address_when_it_is_added(operate: Call, url: str) -> None:
    error = operate("webhook_add", url=url)["error"]
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "url")


WRAPPED = [
    lambda inner: IPv6Address(int(inner)),
    lambda inner: IPv6Address(0xFFFF << 32 | int(inner)),
    lambda inner: IPv6Address(0xFFFF << 48 | int(inner)),
    lambda inner: IPv6Address(int(IPv6Address("64:ff9b::")) | int(inner)),
    lambda inner: IPv6Address(0x2002 << 112 | int(inner) << 80 | 1),
    lambda inner: IPv6Address(0x20010000 << 96 | int(inner) << 64 | 0xF7F7F7F7),  # Teredo's server
    lambda inner: IPv6Address(0x20010000 << 96 | 0x08080808 << 64 | int(inner) ^ 0xFFFFFFFF),  # and its client
]


@given(inner=ipaddresses(v=4), wrap=st.sampled_from(WRAPPED))
@example(inner=IPv4Address("8.8.8.8"), wrap=WRAPPED[3])
@example(inner=IPv4Address("192.88.99.1"), wrap=WRAPPED[3])
def test_an_ipv6_address_is_as_public_as_the_ipv4_address_in_it(inner: IPv4Address, wrap: Callable[..., Any]) -> None:
    assert sender.is_public(wrap(inner)) is sender.is_public(inner)


@given(address=ipaddresses())
def test_no_address_is_public_that_python_calls_local(address: IPv4Address | IPv6Address) -> None:
    listed = ["fec0::/10", "192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "5f00::/16"]
    if sender.is_public(address) and address not in ip_network("2002::/16") and address not in ip_network("2001::/32"):
        assert address.is_global
        assert not any(address in ip_network(network) for network in listed)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::1"])
def test_an_address_on_the_internet_is_public(address: str) -> None:
    assert sender.is_public(ip_address(address))


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1"])
def test_it_refuses_a_name_that_leads_home(receiver: Receiver, host: str) -> None:
    url = receiver.url.replace("127.0.0.1", host)
    with pytest.raises(sender.Undelivered, match="private addresses only"):
        sender.post(url, "{}", {}, allow_private=False)
    assert receiver.got == []


def test_it_connects_to_the_address_it_checked(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name server that says something else the second time is not asked a second time."""
    port = int(receiver.url.rpartition(":")[2])
    answers = [("203.0.113.9", port), ("127.0.0.1", port), ("127.0.0.1", port)]
    asked: list[str] = []
    dialled: list[tuple[str, int]] = []

    def resolve(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        return [(2, 1, 6, "", answers[len(asked) - 1])]

    def dial(address: tuple[str, int], *_: Any) -> None:
        dialled.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.getaddrinfo", resolve)
    monkeypatch.setattr("socket.create_connection", dial)
    monkeypatch.setattr(sender, "is_public", lambda address: not address.is_loopback)
    with pytest.raises(sender.Undelivered, match="refused"):
        sender.post(f"http://rebind.example:{port}/", "{}", {}, allow_private=False)
    assert (asked, dialled) == (["rebind.example"], [("203.0.113.9", port)])


@pytest.mark.usefixtures("starts_processes")
def test_it_reaches_a_receiver_that_listens_on_one_family_alone(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(receiver.url.rpartition(":")[2])
    both = [(socket.AF_INET6, 1, 6, "", ("::1", port, 0, 0)), (socket.AF_INET, 1, 6, "", ("127.0.0.1", port))]
    monkeypatch.setattr(
        "socket.getaddrinfo", lambda host, *_, **__: [row for row in both if host in ("receiver.example", row[4][0])]
    )
    sender.post(f"http://receiver.example:{port}/", "{}", {}, allow_private=True)
    assert receiver.got


@pytest.mark.usefixtures("starts_processes")
def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "TOTAL_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(sender.Undelivered):
        sender.post(f"http://127.0.0.1:{silent.getsockname()[1]}/", "{}", {}, allow_private=True)


def test_it_does_not_wait_for_a_silent_name_server_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = threading.Event()
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: silent.wait(30))
    monkeypatch.setattr(sender, "STEP_SECONDS", 0.05)
    try:
        with pytest.raises(sender.Undelivered, match="look-up of the host name took too long"):
            sender.post("http://silent.example/", "{}", {}, allow_private=True)
    finally:
        silent.set()


# Who may ask for it


def test_it_is_for_operators(refused: Call) -> None:
    one = {"webhook_id": "x"}
    for name, arguments in (("webhook_add", {"url": Posted.url}), ("webhook_list", {}), ("webhook_remove", one)):
        assert refused(name, **arguments)["code"] == "NOT_OWNER"
        assert not COORDINATION.operations[name].tool


def test_it_shows_its_secret_once_and_logs_only_its_host(operate: Call, call: Call, posted: Posted) -> None:
    added = operate("webhook_add", url=f"{posted.url}/token-abc", allow_private=True)["data"]
    shown = json.dumps(operate("webhook_list"))
    assert added["webhook_id"] in shown and added["secret"] not in shown
    event = Event.objects.get(type="webhook.added")
    assert (event.payload["operator"], event.payload["host"]) == ("ada", "127.0.0.1")
    assert "token-abc" not in json.dumps(event.payload)


def test_it_gets_nothing_once_it_is_removed(add: Call, call: Call, operate: Call, project: str, posted: Posted) -> None:
    webhook_id = add(types=["message.created"])["webhook_id"]
    write(call, project)
    assert operate("webhook_remove", webhook_id=webhook_id)["data"]["removed"]
    assert deliver() == (0, 0)
    assert operate("webhook_remove", webhook_id=webhook_id)["error"]["code"] == "NOT_FOUND"


def test_it_is_looked_after_from_the_command_line(
    add: Call, posted: Posted, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook_id = add(types=["message.created"])["webhook_id"]
    for arguments, code, printed in (
        (["list"], 0, webhook_id),
        ([], 0, webhook_id),
        (["redeliver", webhook_id, "--json"], 0, '"given_up": 0'),
        (["delete", webhook_id, "--yes", "--json"], 0, '"removed": true'),
        (["list", "--json"], 3, '"webhooks": []'),
        (["create", posted.url, "--allow-private", "--type", "message.created"], 0, "whsec_"),
    ):
        with pytest.raises(SystemExit) as end:
            call_command("webhooks", *arguments)
        assert (end.value.code, printed in capsys.readouterr().out) == (code, True), arguments


def test_it_says_that_a_webhook_is_unknown(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["redeliver", "whk_x"], ["delete", "whk_x", "--yes"]):
        with pytest.raises(SystemExit, match="1"):
            call_command("webhooks", *arguments)
        assert capsys.readouterr().err == "[nexus] NOT_FOUND: No such webhook: 'whk_x'.\n"
