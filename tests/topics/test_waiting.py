"""A sync that waits: what wakes it, what it writes, and what happens to one whose client gave up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from coordination.log.selectors import interest_in
from nexus.core import waiting
from nexus.core.database.store import store
from nexus.core.operations import dispatch
from nexus.topics import services
from nexus.topics.models import Peer, TopicMessage
from nexus.topics.toolset import TOPICS
from tests.conftest import settled
from tests.core.waiting import LONG, at_rest, parked
from tests.store import failing
from tests.topics.conftest import Client, texts

pytestmark = pytest.mark.usefixtures("committed")


async def in_thread(call: Any, *arguments: Any, **named: Any) -> Any:
    return await waiting.in_thread(waiting.WRITERS, partial(call, *arguments, **named))


@pytest.fixture
def room() -> tuple[Client, Client, str]:
    """ann and bob in a topic."""
    ann, bob = Client(), Client()
    topic = ann.call("topic_create", name="cache")["topic_id"]
    ann.join(topic, "ann")
    bob.join(topic, "bob")
    return ann, bob, topic


def poll(client: Client, topic: str, **more: Any) -> asyncio.Task[dict[str, Any]]:
    """Start a sync that waits."""
    asked = {"topic_id": topic, "wait_seconds": LONG, **more}
    return asyncio.create_task(dispatch.arun(TOPICS, client.caller, "sync", asked))


def cursor_of(name: str) -> int:
    return Peer.objects.get(agent_name=name).last_seq


async def test_it_waits_for_a_message_of_another(room: tuple[Client, Client, str]) -> None:
    ann, bob, topic = room
    waits = poll(bob, topic, outbox=[{"content_markdown": "sent first"}])
    await parked()
    await in_thread(bob.say, topic, "one's own ends no wait")
    assert texts(await in_thread(ann.look, topic)) == ["sent first", "one's own ends no wait"]
    await in_thread(ann.say, topic, "hello")
    synced = await waits
    assert (texts(synced), synced["status"], synced["cursor"]["last_seq"]) == (["hello"], "ready", 3)
    assert [each["message"]["content_markdown"] for each in synced["sent"]] == ["sent first"]
    assert await in_thread(cursor_of, "bob") == 3


async def test_it_waits_no_longer_than_it_was_told(room: tuple[Client, Client, str]) -> None:
    _, bob, topic = room
    synced = await poll(bob, topic, wait_seconds=1, outbox=[{"content_markdown": "x"}])
    assert (synced["status"], synced["received"], synced["cursor"]["last_seq"]) == ("timeout", [], 0)
    assert len(synced["sent"]) == 1


async def test_it_waits_as_long_as_the_contract_says_whatever_the_ceiling_of_other_waits(
    room: tuple[Client, Client, str], configure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob, topic = room
    configure(max_wait_timeout_seconds=0)
    really, asked = waiting.Parked.wait, []

    async def noted(self: waiting.Parked, seconds: float) -> bool:
        asked.append(seconds)
        return await really(self, seconds)

    monkeypatch.setattr(waiting.Parked, "wait", noted)
    waits = asyncio.create_task(dispatch.arun(TOPICS, bob.caller, "sync", {"topic_id": topic}))
    await parked()
    while not asked:
        await asyncio.sleep(0.001)
    assert 30 < asked[0] <= 60, "the contract's default"
    await in_thread(ann.say, topic, "hello")
    assert texts(await waits) == ["hello"]


async def test_the_outbox_is_sent_once_however_often_the_wait_looks(room: tuple[Client, Client, str]) -> None:
    ann, bob, topic = room
    other = (await in_thread(ann.call, "topic_create", name="other"))["topic_id"]
    await in_thread(ann.join, other, "ann")
    waits = poll(bob, topic, outbox=[{"content_markdown": "once"}])
    await parked()
    for _ in range(3):
        await in_thread(bob.say, topic, "own")
        await in_thread(ann.say, other, "elsewhere")
    await in_thread(ann.say, topic, "end")
    await waits
    assert await in_thread(TopicMessage.objects.filter(content_markdown="once").count) == 1


async def test_a_client_that_gave_up_loses_nothing(room: tuple[Client, Client, str]) -> None:
    ann, bob, topic = room
    waits = poll(bob, topic)
    await parked()
    waits.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waits
    await in_thread(ann.say, topic, "hello")
    await in_thread(lambda: None)
    assert await in_thread(cursor_of, "bob") == 0
    assert texts(await in_thread(bob.look, topic)) == ["hello"]


async def test_a_client_that_gave_up_while_its_answer_waited_for_its_turn_loses_nothing(
    room: tuple[Client, Client, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look has found the message, and the cursor's turn to be written has not come."""
    ann, bob, topic = room
    looked = asyncio.Event()
    loop = asyncio.get_running_loop()
    operation = TOPICS.operations["sync"]
    assert operation.wait is not None
    look = operation.wait.look
    assert look is not None

    def watched(p: Any, caller: Any) -> Any:
        found = look(p, caller)
        if found["received"]:
            loop.call_soon_threadsafe(looked.set)
        return found

    monkeypatch.setitem(TOPICS.operations, "sync", replace(operation, wait=replace(operation.wait, look=watched)))
    waits = poll(bob, topic)
    await parked()
    gate = threading.Event()
    saying = loop.run_in_executor(waiting.writing_calls(), ann.say, topic, "hello")
    # At once, on every thread that writes: what the look leads to queues behind them.
    ahead = [loop.run_in_executor(waiting.writing_calls(), gate.wait, LONG) for _ in range(store().WRITERS)]
    await saying
    await asyncio.wait_for(looked.wait(), LONG)
    await asyncio.sleep(0)
    waits.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waits
    gate.set()
    await asyncio.gather(*ahead)
    await asyncio.to_thread(settled)
    assert await in_thread(cursor_of, "bob") == 0


@pytest.mark.parametrize("came", ["before", "meanwhile"])
async def test_a_client_that_gave_up_while_its_answer_was_written_loses_nothing(
    room: tuple[Client, Client, str], came: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing takes longer than the client has patience for, as where another process holds the store."""
    ann, bob, topic = room
    really, writing, gate = services.sync, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(**arguments: Any) -> Any:
        if arguments["agent_name"] == "bob":
            loop.call_soon_threadsafe(writing.set)
            assert gate.wait(LONG)
        return really(**arguments)

    if came == "before":
        await in_thread(ann.say, topic, "hello")
        monkeypatch.setattr(services, "sync", slow)
        waits = poll(bob, topic)
    else:
        waits = poll(bob, topic)
        await parked()
        monkeypatch.setattr(services, "sync", slow)
        await in_thread(ann.say, topic, "hello")
    await asyncio.wait_for(writing.wait(), LONG)
    waits.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waits
    gate.set()
    await asyncio.to_thread(settled)
    assert await in_thread(cursor_of, "bob") == 0
    assert texts(await in_thread(bob.look, topic)) == ["hello"]


async def test_of_two_that_wait_under_one_name_one_gets_the_message_and_the_other_waits_on(
    room: tuple[Client, Client, str],
) -> None:
    ann, bob, topic = room
    twin = Client()
    token = await in_thread(bob.join, topic, "bob")
    await in_thread(twin.join, topic, "bob", reclaim_token=token)
    both = {poll(bob, topic), poll(twin, topic)}
    await parked(2)
    await in_thread(ann.say, topic, "one")
    done, left = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    assert [texts(each.result()) for each in done] == [["one"]] and len(left) == 1
    await in_thread(ann.say, topic, "two")
    assert texts(await left.pop()) == ["two"]


async def test_a_wait_that_meets_a_busy_store_at_its_end_is_answered_all_the_same(
    room: tuple[Client, Client, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error would have the client send its outbox a second time."""
    ann, bob, topic = room
    monkeypatch.setattr("nexus.core.operations.dispatch.time.sleep", lambda seconds: None)
    waits = poll(bob, topic, outbox=[{"content_markdown": "once"}])
    await parked()
    really, failures = services.sync, iter(range(dispatch.ATTEMPTS + 1))

    def busy_at_first(**arguments: Any) -> Any:
        if arguments["agent_name"] == "bob" and next(failures, None) is not None:
            raise failing("busy")
        return really(**arguments)

    monkeypatch.setattr(services, "sync", busy_at_first)
    await in_thread(ann.say, topic, "hello")
    synced = await waits
    assert (texts(synced), len(synced["sent"])) == (["hello"], 1)


async def test_a_wait_ends_with_the_membership_that_it_began_with(room: tuple[Client, Client, str]) -> None:
    ann, bob, topic = room
    waits = poll(bob, topic)
    await parked()
    await in_thread(lambda: Peer.objects.filter(agent_name="bob").delete())
    await in_thread(ann.say, topic, "hello")
    waits.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waits
    assert (await in_thread(bob.refused, "sync", topic_id=topic))["code"] == "AGENT_NOT_JOINED"


async def test_a_message_asks_no_wait_of_another_topic(
    room: tuple[Client, Client, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ann, bob, topic = room
    other = (await in_thread(ann.call, "topic_create", name="other"))["topic_id"]
    for client in (ann, bob):
        await in_thread(client.join, other, "ann" if client is ann else "bob")
    asked: list[str] = []

    def noted(stream: str, name: str, value: str, admits: Any) -> waiting.Interest:
        return interest_in(stream, name, value, lambda event: asked.append(value) or admits(event))  # type: ignore[func-returns-value]

    monkeypatch.setattr("nexus.topics.operations.interest_in", noted)
    here, there = poll(bob, topic), poll(bob, other)
    await at_rest(2)
    await in_thread(ann.say, topic, "hello")
    assert texts(await here) == ["hello"]
    assert set(asked) == {topic}
    await in_thread(ann.say, other, "hello there")
    assert texts(await there) == ["hello there"]
