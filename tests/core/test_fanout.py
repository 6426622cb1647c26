"""Fan-out by NATS, with the real server: whom a message reaches, and what a server that fails costs."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from django.conf import settings as django_settings

from coordination.toolset import run
from nexus.core import fanout
from nexus.core.config import parse, resolve, without_credentials
from nexus.core.database.base import LOOK_SECONDS
from nexus.core.domain import ANY
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from tests.nats import START_SECONDS, Nats, Network, nats
from tests.outside import program
from tests.postgres import Cluster, programs

SECRET = "geheim"
DATABASE = "postgresql://u@h/x"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "nats://"),
        (f"http://u:{SECRET}@h:4222", "nats://"),
        (f"nats://u:{SECRET}@", "nats://"),
        (f"nats://u:{SECRET}@h:port", "nats://"),
        (f"nats://u:{SECRET}@h/x", "nats://"),
        (f"nats://u:{SECRET}@h,", "nats://"),
        (f"nats://u:{SECRET}@h?colour={SECRET}", "creds, nkey, ca"),
        (f"nats://u:{SECRET}@h?creds=/{SECRET}/not-there", "file of the parameter creds"),
    ],
)
def test_it_refuses_an_address_that_is_none_and_keeps_its_secrets(url: str, said: str) -> None:
    with pytest.raises(NexusError) as caught:
        parse("nats_url", url, "NEXUS_NATS_URL")
    assert caught.value.code == Code.CONFIG_ERROR
    assert said in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.usefixtures("starts_processes")
async def test_it_logs_no_traceback_of_the_library(caplog: pytest.LogCaptureFixture) -> None:
    with nats() as server:
        connection = fanout.Connection(server.url)
        await connection.open(lambda: None)
        server.signal(signal.SIGSTOP)
        confirming = asyncio.create_task(connection.confirm())
        while not connection._client._pongs:
            await asyncio.sleep(0)
        confirming.cancel()
        server.signal(signal.SIGCONT)  # its answer is late, which ends the library's reading
        await asyncio.wait([connection._client._reading_task])
        connection.abandon()
    assert "Traceback" not in caplog.text


def test_it_needs_postgresql() -> None:
    with pytest.raises(NexusError, match="NEXUS_NATS_URL needs a store in PostgreSQL") as caught:
        resolve({"NEXUS_NATS_URL": "nats://h:4222"}, {})
    assert caught.value.code == Code.CONFIG_ERROR
    resolve({"NEXUS_NATS_URL": "nats://h:4222", "NEXUS_DATABASE_URL": DATABASE}, {})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"nats://u:{SECRET}@h:4222", "nats://h:4222"),
        (f"tls://{SECRET}@one,tls://{SECRET}@two:4223?creds=/{SECRET}", "tls://one,tls://two:4223"),
    ],
)
def test_it_shows_an_address_without_what_is_secret(
    url: str, shown: str, db: None, configure: Callable[..., None]
) -> None:
    assert without_credentials(url) == shown
    configure(nats_url=url)
    answer = run(Caller(transport="test", operator="ann"), "settings_list", {})
    assert SECRET not in str(answer)
    assert {row["name"]: row["value"] for row in answer["data"]["settings"]}["nats_url"] == shown


def test_a_key_is_a_subject_that_no_text_can_leave() -> None:
    assert fanout.subject_of(("ws-1", ANY, ("everybody",))) == "event.ws-1.*.~everybody"
    assert fanout.subject_of((None, "topic", "ann")) == "event.~none.topic.ann"
    assert fanout.subject_of("every event") == "event.>"
    strange = ["a.b", "*", ">", "", "a b", "~none", "\r\nPUB x 1", "ü", "x" * 65, "any"]
    subjects = {fanout.subject_of((text, "s", "a")) for text in strange}
    assert len(subjects) == len(strange)
    assert all(len(subject.split(".")) == 4 and len(subject) < 80 and subject.isascii() for subject in subjects)
    assert not any(sign in subject for subject in subjects for sign in "*> \r\n")


@pytest.fixture(scope="module")
def database(runs_postgres: None) -> Iterator[str]:
    """A PostgreSQL database, for its identity."""
    if programs() is None:
        program("initdb")
    with Cluster() as cluster:
        yield f"{cluster.url}/postgres"


@pytest.fixture
def wire(database: str, configure: Callable[..., None]) -> Iterator[Callable[[str], fanout.Wire]]:
    """Make a wire, as a process has one, to a server."""
    configure(database_url=database)
    made: list[fanout.Wire] = []

    def make(url: str) -> fanout.Wire:
        made.append(fanout.Wire(url))
        return made[-1]

    yield make
    for each in made:
        each.finish()


class Pair:
    """The wires of two processes: `here` publishes, `there` hears."""

    def __init__(self, here: fanout.Wire, there: fanout.Wire) -> None:
        self.here, self.there = here, there
        self.got: list[bytes | None] = []
        self._came = threading.Condition()

    def hear(self, subject: str) -> None:
        self.there.hear(subject, self._take)
        self.until(lambda: self.got[-1:] == [None])

    def _take(self, content: bytes | None) -> None:
        with self._came:
            self.got.append(content)
            self._came.notify_all()

    def until(self, reached: Callable[[], object]) -> None:
        with self._came:
            assert self._came.wait_for(reached, START_SECONDS), self.got

    def pass_one(self) -> None:
        """Let a message arrive; those that are dropped meanwhile are sent anew."""
        number = b"%d" % time.monotonic_ns()
        deadline = time.monotonic() + START_SECONDS
        while number not in self.got:
            assert time.monotonic() < deadline
            self.here.publish("event.a", number)
            time.sleep(0.02)


def failing(wire: fanout.Wire) -> str:
    """Why a wire has no connection, as soon as it has none."""
    deadline = time.monotonic() + START_SECONDS
    while wire.problem is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return wire.problem


Make = Callable[[str], fanout.Wire]


def test_a_message_reaches_who_listens_for_its_key_alone(wire: Make) -> None:
    with nats() as server:
        pair = Pair(wire(server.url), wire(server.url))
        pair.hear(fanout.subject_of(("ws", ANY, "ann")))
        for key in (("ws", "mail", "bob"), ("other", "mail", "ann"), ("ws", "mail", "ann")):
            pair.here.publish(fanout.subject_of(key), str(key).encode())
        pair.until(lambda: len(pair.got) == 2)
        assert pair.got[1:] == [str(("ws", "mail", "ann")).encode()]
        assert pair.there.received == 1


def test_it_hears_again_after_the_server_restarted_and_says_so_once(
    wire: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, fanout.__name__)
    with nats() as server:
        pair = Pair(wire(server.url), wire(server.url))
        pair.hear("event.a")
        pair.pass_one()
        caplog.clear()
        server.stop()
        assert failing(pair.there) == "NATS cannot be reached"
        failing(pair.here)
        pair.got.clear()
        time.sleep(2 * fanout.AGAIN_SECONDS)
        server.start()
        pair.until(lambda: None in pair.got)  # what was missed meanwhile is looked for
        pair.pass_one()
        lines = [record.getMessage() for record in caplog.records]
        assert sorted(line.partition(".")[0] for line in lines) == sorted(
            2 * ["NATS cannot be reached"] + 2 * ["NATS is reached again"]
        )


def test_a_network_that_carries_nothing_is_noticed_and_waited_for(wire: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(fanout, "ANSWER_SECONDS", 1.0)
    with nats() as server, closing(Network(server.port)) as network:
        pair = Pair(wire(server.url), wire(f"nats://127.0.0.1:{network.port}"))
        pair.hear("event.a")
        pair.pass_one()
        network.cut = True
        assert failing(pair.there) == "NATS cannot be reached"
        monkeypatch.undo()
        network.cut = False
        pair.pass_one()


def test_a_server_that_hangs_delays_nobody_and_keeps_nothing(wire: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "ASK_SECONDS", 0.1)
    monkeypatch.setattr(fanout, "ANSWER_SECONDS", 1.0)
    with nats() as server:
        pair = Pair(wire(server.url), wire(server.url))
        pair.hear("event.a")
        server.signal(signal.SIGSTOP)
        while pair.here.problem is None:
            pair.here.publish("event.a", b"x" * 100_000)
            assert pair.here._waiting <= fanout.MOST_WAITING
            time.sleep(0.001)
        assert pair.here._waiting == 0
        monkeypatch.undo()  # a slow machine answers slowly
        server.signal(signal.SIGCONT)
        pair.pass_one()


REFUSING = {
    "password": (
        'authorization { user: "u", password: "p" }',
        f"u:{SECRET}@",
        "NATS refuses the user, password, token or key of nats_url",
    ),
    "nobody": (
        'authorization { token: "t" }',
        "",
        "NATS refuses the user, password, token or key of nats_url",
    ),
    "subscriptions": (
        "max_subscriptions: 1",
        "",
        "NATS allows this user fewer subscriptions than there are waits (max_subscriptions)",
    ),
}


@pytest.mark.parametrize("how", REFUSING)
async def test_a_server_that_refuses_is_named_with_its_reason_and_no_secret(
    how: str, wire: Make, caplog: pytest.LogCaptureFixture
) -> None:
    settings, credentials, problem = REFUSING[how]
    with nats(settings, credentials=credentials) as server:
        on = wire(server.url)
        for subject in ("event.a", "event.b", "event.c"):
            on.hear(subject, lambda content: None)
        assert failing(on) == problem
        if how != "subscriptions":
            assert await fanout.problem_of(server.url) == problem
    assert SECRET not in caplog.text


async def opened(url: str) -> fanout.Connection:
    """The only connection of a server, once that by which its start was seen has ended."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        connection = fanout.Connection(url)
        try:
            await connection.open(lambda: None)
        except OSError:
            assert time.monotonic() < deadline
        else:
            return connection


@pytest.mark.usefixtures("starts_processes")
async def test_a_server_that_is_full_is_waited_for() -> None:
    with nats("max_connections: 1") as server:
        first = await opened(server.url)
        problem = await fanout.problem_of(server.url)
        assert problem == "NATS ended the connection at once: it may be full (max_connections)"
        first.abandon()
        deadline = time.monotonic() + START_SECONDS
        while await fanout.problem_of(server.url) is not None:
            assert time.monotonic() < deadline


@pytest.mark.usefixtures("starts_processes")
async def test_what_answers_there_may_be_no_nats_or_nobody() -> None:
    assert await fanout.problem_of(Nats().url) == "NATS cannot be reached"
    with closing(Network(0)) as other:
        problem = await fanout.problem_of(f"nats://127.0.0.1:{other.port}")
        assert problem == "What answers at nats_url is not a NATS server"


def test_a_message_larger_than_the_server_takes_is_dropped_alone(wire: Make) -> None:
    with nats("max_payload: 1000") as server:
        pair = Pair(wire(server.url), wire(server.url))
        pair.hear("event.a")
        pair.here.publish("event.a", b"x" * 1001)
        pair.pass_one()
        assert not any(len(each or b"") > 1000 for each in pair.got)
        assert (pair.here.problem, pair.there.problem) == (None, None)


def test_tls_is_not_given_up_for_a_server_without_it(wire: Make) -> None:
    with nats(f'authorization {{ user: "u", password: "{SECRET}" }}', credentials=f"u:{SECRET}@") as server:
        on = wire(server.url.replace("nats:", "tls:"))
        assert failing(on) == "NATS offers no TLS, which nats_url asks for (tls://)"


def test_a_watch_has_news_for_its_keys_and_at_intervals(wire: Make) -> None:
    with nats() as server:
        here, there = wire(server.url), wire(server.url)
        with closing(fanout.Watch(there)) as watch:
            watch.listen(("ws", ANY, ("everybody",)))
            deadline = time.monotonic() + START_SECONDS
            while watch._newest != math.inf:
                assert time.monotonic() < deadline
            watch._looked = time.monotonic() + 3600
            assert watch.has_news(41), "one may have come before it listened"
            watch._looked = time.monotonic() + 3600
            assert not watch.has_news(41)
            here.publish(fanout.subject_of(("ws", "mail", ("everybody",))), b"42")
            while not watch._newest:
                assert time.monotonic() < deadline
            watch.drain()
            assert not watch.has_news(42), "it was seen already"
            watch._looked = time.monotonic() - LOOK_SECONDS
            assert watch.pause == 0
            assert watch.has_news(42), "a message may be lost"
            assert 0 < watch.pause <= LOOK_SECONDS


def test_a_key_without_a_wait_is_heard_for_a_while(wire: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with nats() as server:
        on = wire(server.url)
        with closing(fanout.Watch(on)) as watch:
            watch.listen(("a", "b", "c"))
            watch.unlisten(("a", "b", "c"))
            watch.has_news(0)
            assert on._heard
            watch.listen(("a", "b", "c"))
            monkeypatch.setattr(fanout, "KEEP_SECONDS", 0.0)
            watch.has_news(0)
            assert on._heard
            watch.unlisten(("a", "b", "c"))
            watch.has_news(0)
            assert not on._heard
            watch.listen(("d", "e", "f"))
        assert not on._heard


def test_a_process_that_ends_sends_what_it_committed_and_waits_for_no_server_that_is_away(wire: Make) -> None:
    with nats() as server:
        pair = Pair(wire(server.url), wire(server.url))
        pair.hear("event.a")
        pair.here.publish("event.a", b"1")
        pair.here.finish()
        pair.until(lambda: b"1" in pair.got)
    failing(pair.there)
    began = time.monotonic()
    pair.there.finish()
    assert time.monotonic() < began + fanout.EXIT_SECONDS


def test_without_the_setting_there_is_no_wire(configure: Callable[..., None], database: str) -> None:
    assert fanout.wire() is None
    configure(database_url=database)
    assert fanout.wire() is None
    configure(database_url=None, nats_url="nats://h")
    assert fanout.wire() is None, "another store than PostgreSQL, for a moment"
    assert django_settings.NEXUS.nats_url
