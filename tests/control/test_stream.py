"""An agent live: its transcript from any place on, exactly, and what it is at."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.toolset import run
from nexus.control.agents import transcript
from nexus.control.models import Entry, PoolAgent, Role, Turn, TurnStatus
from nexus.control.rpc import agent_stream
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.core.operations.errors import NexusError
from nexus.core.waiting import waiter
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL, OPERATOR
from tests.control.listening import WITH_TOKEN, do, listening
from tests.control.playing import at_hand, fill, lead, pool, say, send, settle, take, writer
from tests.control.wire import TOKEN
from tests.store import plans

__all__ = ["at_hand", "lead", "writer"]


@pytest.fixture(autouse=True)
def on(committed: None, at_hand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool runs, and what is written is seen by other threads."""
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)


def answered(agent_id: str = "lead", query: str = "", **how: Any) -> tuple[int, Any]:
    """The status, and the error, of a stream that does not begin."""

    async def ask() -> tuple[int, Any]:
        async with listening(agent_id, query, **how) as (listener, task):
            await asyncio.wait_for(asyncio.shield(task), START_SECONDS)
            return listener.status, None if listener.messages.empty() else listener.messages.get_nowait()["data"]

    return asyncio.run(ask())


async def test_it_tells_a_turn_while_it_goes_on(lead: PoolAgent) -> None:
    async with listening() as (listener, _):
        state = (await listener.next("state"))["data"]
        assert state == {"running": None, "waiting": 0, "last": None, "ended": False}
        request_id = await do(lambda: send("lead", "Look"))
        turn = await do(take)
        asked = await listener.next("entry")
        assert asked["id"] == f"{lead.pk}:1"
        expected = {"position": 0, "role": "user", "content": "Look", "request_id": request_id}
        assert expected.items() <= asked["data"].items()
        meta = {"tool_calls": [{"id": "c", "name": "grep", "arguments": {"x": 1}}]}
        await do(lambda: say(turn, Role.ASSISTANT, "", meta=meta))
        assert (await listener.next("entry"))["data"]["meta"] == meta
        await do(lambda: say(turn, Role.TOOL, "found", tool_call_id="c"))
        assert (await listener.next("entry"))["data"]["tool_call_id"] == "c"
        await do(lambda: settle(turn, input_tokens=7, output_tokens=2))
        while (state := (await listener.next("state"))["data"])["last"] is None:
            pass
        told = {"request_id": request_id, "status": "done", "input_tokens": 7, "output_tokens": 2}
        assert told.items() <= state["last"].items() and state["running"] is None


@pytest.mark.parametrize("by", ["after", "header"])
async def test_it_resumes_exactly_from_the_place_that_a_client_was_told(lead: PoolAgent, by: str) -> None:
    await do(lambda: fill(lead, 1_000))
    seen: list[int] = []
    place = f"{lead.pk}:0"
    for cut in (1, 99, 100, 101, 333, 366):
        how = {"query": f"after={place}"} if by == "after" else {"headers": (*WITH_TOKEN, ("last-event-id", place))}
        async with listening(**how) as (listener, _):
            for _ in range(cut):
                message = await listener.next("entry")
                seen.append(message["data"]["position"])
                place = message["id"]
    assert seen == list(range(1_000))


def test_a_state_is_told_after_everything_that_was_said_by_then(
    lead: PoolAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    send("lead")
    turn = take()
    state_of = agent_stream.state_of

    def ending(agent: PoolAgent) -> agent_stream.AgentState:
        """The turn goes on, and ends, between the two looks."""
        state = state_of(agent)
        if state["running"]:
            say(turn, Role.ASSISTANT, "the last word")
            settle(turn)
        return state

    monkeypatch.setattr(agent_stream, "state_of", ending)

    async def play() -> list[Any]:
        told = []
        async with listening() as (listener, _):
            while True:
                message = await asyncio.wait_for(listener.messages.get(), START_SECONDS)
                told.append((message.get("event"), message.get("data", {}).get("content")))
                if (message.get("data") or {}).get("last"):
                    return told

    told = asyncio.run(play())
    assert told.index(("entry", "the last word")) < len(told) - 1


def test_long_entries_are_read_a_few_at_a_time_and_all_told_before_the_state(
    lead: PoolAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcript, "LARGEST_PAGE", 100)
    pages: list[int] = []
    page = transcript.page

    def counted(*arguments: Any) -> tuple[list[Entry], bool]:
        found = page(*arguments)
        pages.append(len(found[0]))
        return found

    monkeypatch.setattr(transcript, "page", counted)
    send("lead", "word " * 60)
    turn = take()
    for _ in range(4):
        say(turn, Role.ASSISTANT, "word " * 60)

    async def play() -> list[Any]:
        async with listening() as (listener, _):
            told = [await asyncio.wait_for(listener.messages.get(), START_SECONDS) for _ in range(7)]
            return [message["event"] for message in told if "event" in message]

    assert asyncio.run(play()) == [*["entry"] * 5, "state"]
    assert max(pages) == 2


async def test_a_slow_reader_stops_nobody_and_misses_nothing(lead: PoolAgent) -> None:
    async with listening() as (slow, _), listening() as (quick, _):
        await slow.next("state")
        await quick.next("state")
        slow.reading.clear()
        await do(lambda: fill(lead, 1_000))
        await do(lambda: send("lead"))
        await do(take)
        seen = [(await quick.next("entry"))["data"]["position"] for _ in range(1_001)]
        assert seen == list(range(1_001))
        taken = slow.sent
        slow.reading.set()
        seen = [(await slow.next("entry"))["data"]["position"] for _ in range(1_001)]
        assert seen == list(range(1_001)) and taken < 10  # nothing was kept for it


def test_it_ends_with_the_agent_once_its_last_word_is_told(lead: PoolAgent) -> None:
    async def play() -> str:
        async with listening() as (listener, task):
            await listener.next("state")
            await do(lambda: send("lead"))
            turn = await do(take)
            await do(lambda: pool("pool_destroy_agent", agent_id="lead"))
            await do(lambda: say(turn, Role.ASSISTANT, "bye"))
            await do(lambda: settle(turn, TurnStatus.CANCELLED))
            await listener.next("entry")
            last = await listener.next("entry")
            assert last["data"]["content"] == "bye"
            while not (await listener.next("state"))["data"]["ended"]:
                pass
            await asyncio.wait_for(asyncio.shield(task), START_SECONDS)
            return str(last["id"])

    place = asyncio.run(play())
    assert answered(query=f"after={place}") == (204, None)
    assert answered(query=f"after={lead.pk}:2")[0] == 204


def test_a_place_belongs_to_the_agent_that_it_was_told_of(lead: PoolAgent, at_hand: Path) -> None:
    fill(lead, 3)
    pool("pool_destroy_agent", agent_id="lead")
    pool("pool_create_agent", agent_id="lead", cwd=str(at_hand))
    second = PoolAgent.objects.living().get()
    fill(second, 1)

    async def first_of(query: str) -> tuple[str, bool]:
        async with listening(query=query) as (listener, _):
            entry = await listener.next("entry")
            return entry["id"], (await listener.next("state"))["data"]["ended"]

    assert asyncio.run(first_of(f"after={lead.pk}:2")) == (f"{lead.pk}:3", True)
    assert asyncio.run(first_of("")) == (f"{second.pk}:1", False)


def test_it_stops_where_a_key_is_revoked_in_the_middle(lead: PoolAgent) -> None:
    issued = run(OPERATOR, "agent_key_issue", {"agent_id": "lead"})["data"]["api_key"]
    headers = (("authorization", f"Bearer {issued}"),)

    async def play() -> None:
        async with listening(headers=headers) as (listener, task):
            await listener.next("state")
            await do(lambda: run(OPERATOR, "agent_key_set_active", {"agent_id": "lead", "active": False}))
            await do(lambda: send("lead", "secret"))
            await do(take)
            assert (await listener.next("closing"))["data"]["code"] == "NOT_OWNER"
            await asyncio.wait_for(asyncio.shield(task), START_SECONDS)
            assert listener.messages.empty()

    asyncio.run(play())
    assert answered(headers=headers)[0] == 403


def test_it_refuses_who_may_not_look_into_the_agent(lead: PoolAgent, writer: PoolAgent) -> None:
    key = run(OPERATOR, "agent_key_issue", {"agent_id": "writer"})["data"]["api_key"]
    run(LOCAL, "agent_register", {"agent_id": "stranger"})
    stranger = run(OPERATOR, "agent_key_issue", {"agent_id": "stranger"})["data"]["api_key"]
    for headers, status in (
        ((("authorization", f"Bearer {key}"),), 403),  # a child, of its parent
        ((("x-api-key", key),), 403),
        ((("authorization", f"Bearer {stranger}"),), 403),
        ((("authorization", "Bearer nxk_wrong"),), 403),
        ((("authorization", "Basic eDp5"),), 401),
        ((*WITH_TOKEN, ("x-nexus-agent", "writer")), 403),
        ((*WITH_TOKEN, ("x-nexus-agent", "nobody")), 400),
        ((*WITH_TOKEN, ("origin", "http://evil.test")), 403),
        ((("origin", "http://evil.test"),), 403),
        ((("x-forwarded-for", "10.0.0.1"),), 401),  # behind a proxy nobody is local
    ):
        answer = answered(headers=headers)
        assert answer[0] == status and answer[1]["id"] is None and answer[1]["error"]["message"], headers
    key_of_stranger = (("authorization", f"Bearer {stranger}"),)
    assert answered("nobody", headers=key_of_stranger) == answered(headers=key_of_stranger), "whether there is one"


async def test_a_parent_follows_its_child(lead: PoolAgent, writer: PoolAgent) -> None:
    issued = await do(lambda: run(OPERATOR, "agent_key_issue", {"agent_id": "lead"}))
    key = issued["data"]["api_key"]
    async with listening("writer", headers=(("x-api-key", key),)) as (listener, _):
        await listener.next("state")
        assert listener.status == 200


WRONG = ["-1", "x", "1.0", "99999999999999999999", "pool_x:", "a:1"]


def test_it_refuses_a_place_that_is_none(lead: PoolAgent) -> None:
    for query in [f"after={place}" for place in WRONG]:
        status, error = answered(query=query)
        assert status == 400 and error["error"]["code"] == -32602


def test_it_answers_404_for_an_agent_that_never_was_and_405_for_a_post(lead: PoolAgent) -> None:
    assert answered("nobody")[0] == 404
    assert answered(query="after=pool_other:1")[0] == 404
    assert answered(method="POST")[0] == 405


@given(st.text())
def test_any_text_is_a_place_or_refused(text: str) -> None:
    found = agent_stream.PLACE.fullmatch(text)
    if found is None:
        with pytest.raises(NexusError) as refusal:
            agent_stream.start_of(OPERATOR, "lead", text or "-")
        assert refusal.value.details["field"] == "after"
    else:
        assert int(found[2]) >= 0


async def test_a_client_that_goes_leaves_nothing_behind(lead: PoolAgent) -> None:
    async with listening() as (listener, task):
        await listener.next("state")
        assert len(waiter().parked) == 1
    assert task.done() and not waiter().parked


@pytest.mark.usefixtures("counted_alone")
@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_what_an_agent_is_at_is_read_without_a_look_at_all_that_it_did(lead: PoolAgent) -> None:
    for word in ("one", "two"):
        send("lead", word)
        settle(take())
    send("lead", "three")
    running = take()
    send("lead", "four")
    state = agent_stream.state_of(lead)
    assert (state["running"], state["waiting"], state["ended"]) == (running.request_id, 1, False)
    last = Turn.objects.get(content="two")
    assert state["last"] is not None and state["last"]["request_id"] == last.request_id
    looks = [look for look in plans(lambda: agent_stream.state_of(lead)) if "pool_turns" in look]
    assert len(looks) == 2
    assert all("INDEX pool_turns_" in look and "TEMP B-TREE FOR ORDER" not in look for look in looks), looks
