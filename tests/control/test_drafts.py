"""What an agent is just writing: told in pieces while it grows, and replaced by its entry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.toolset import run
from nexus.control.agents.turns import Ended
from nexus.control.models import Entry, PoolAgent, Role, Turn, TurnStatus
from nexus.control.rpc import agent_stream
from nexus.control.rpc.agent_stream import DRAFTS, Drafts
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.control.runners import base
from nexus.control.runners.base import Scene
from nexus.control.worker import execution
from nexus.control.worker.execution import DraftReporter
from nexus.control.worker.scheduling import Worker
from nexus.core.clock import now
from tests.conftest import OPERATOR
from tests.control.listening import Listener, do, listening
from tests.control.playing import at_hand, lead, say, send, settle, take
from tests.control.pool import Take, acreate, asend, at_work, ended
from tests.control.wire import TOKEN

__all__ = ["at_hand", "lead"]


@pytest.fixture
def on(committed: None, at_hand: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A pool runs, and what is written is seen by other threads."""
    monkeypatch.setattr(ENDPOINT, "token", TOKEN)
    yield
    DRAFTS.clear()


@pytest.fixture
def turn(on: None, lead: PoolAgent) -> Turn:
    """A turn that is being taken."""
    send("lead", "Look")
    return take()


def write(turn: Turn, text: str, *, position: int, offset: int = 0, tokens: tuple[int, int] = (0, 0)) -> None:
    """The worker tells of a draft."""
    said = {"agent": turn.agent_id, "request_id": turn.request_id, "position": position, "offset": offset}
    DRAFTS.hear(json.dumps({**said, "text": text, "tokens": tokens}).encode())


async def drafted(listener: Listener) -> dict[str, Any]:
    data: dict[str, Any] = (await listener.next("draft"))["data"]
    return data


async def test_it_is_told_in_pieces_and_then_whole(turn: Turn) -> None:
    async with listening() as (listener, _):
        assert (await listener.next("state"))["data"]["running"] == turn.request_id
        write(turn, "Hel", position=1)
        told = {"request_id": turn.request_id, "position": 1, "input_tokens": 0, "output_tokens": 0}
        assert await drafted(listener) == {**told, "offset": 0, "text": "Hel"}
        write(turn, "lo", position=1, offset=3)
        assert await drafted(listener) == {**told, "offset": 3, "text": "lo"}
        write(turn, "", position=1, offset=5, tokens=(7, 2))
        assert await drafted(listener) == {
            **told, "offset": 5, "text": "", "input_tokens": 7, "output_tokens": 2,
        }  # fmt: skip
        await do(lambda: say(turn, Role.ASSISTANT, "Hello"))
        entry = await listener.next("entry")
        assert (entry["data"]["position"], entry["data"]["content"]) == (1, "Hello")
        write(turn, "And", position=2)
        assert (await drafted(listener))["position"] == 2


async def test_who_comes_late_is_told_all_of_it_at_once(turn: Turn) -> None:
    write(turn, "Hel", position=1)
    write(turn, "lo", position=1, offset=3)
    for query in ("", f"after={turn.agent_id}:1"):
        async with listening(query=query) as (listener, _):
            told = await drafted(listener)
            assert (told["offset"], told["text"]) == (0, "Hello")


async def test_a_slow_reader_gets_more_at_once_and_nothing_is_kept_for_it(turn: Turn) -> None:
    async with listening() as (slow, _):
        await slow.next("state")
        write(turn, "0", position=1)
        text = (await drafted(slow))["text"]
        slow.reading.clear()
        for number in range(1, 10_000):
            write(turn, str(number % 10), position=1, offset=number)
            if number % 1_000 == 0:
                await asyncio.sleep(0)
        sent = slow.sent
        slow.reading.set()
        while len(text) < 10_000:
            told = await drafted(slow)
            assert told["offset"] == len(text)
            text += told["text"]
        assert text == "0123456789" * 1_000 and slow.sent - sent < 20


async def test_it_never_comes_after_the_entry_that_replaces_it(turn: Turn) -> None:
    write(turn, "Hello", position=1)
    await do(lambda: say(turn, Role.ASSISTANT, "Hello"))
    for query in ("", f"after={turn.agent_id}:2"):
        async with listening(query=query) as (listener, _):
            await listener.next("state")
            write(turn, " again", position=1, offset=5)
            await do(lambda: say(turn, Role.TOOL, "found"))
            told = [message.get("event") for message in list(listener.messages._queue)]  # type: ignore[attr-defined]
            await listener.next("entry")
            assert "draft" not in told


async def test_a_draft_of_a_turn_that_ended_is_nobodys(turn: Turn) -> None:
    write(turn, "Half a", position=1)
    async with listening() as (listener, _):
        await drafted(listener)
        await do(lambda: settle(turn, TurnStatus.INTERRUPTED))
        while (await listener.next("state"))["data"]["running"]:
            pass
        write(turn, " word", position=1, offset=6)
        await do(lambda: send("lead", "More"))
        await do(take)
        while (entry := await listener.messages.get())["event"] == "state":
            pass  # it waits, then runs: told at once or one after the other
        assert (entry["event"], entry["data"]["content"]) == ("entry", "More")


async def test_a_key_that_is_revoked_while_an_agent_writes_ends_it(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_stream, "LOOK_SECONDS", 0)
    issued = await do(lambda: run(OPERATOR, "agent_key_issue", {"agent_id": "lead"}))
    async with listening(headers=(("authorization", f"Bearer {issued['data']['api_key']}"),)) as (listener, _):
        await listener.next("state")
        write(turn, "Hello", position=1)
        await drafted(listener)
        await do(lambda: run(OPERATOR, "agent_key_set_active", {"agent_id": "lead", "active": False}))
        write(turn, " secret", position=1, offset=5)
        while (message := await listener.messages.get()).get("event") != "closing":
            assert "secret" not in str(message)


async def test_nobody_listens_any_more_where_a_client_has_gone(turn: Turn) -> None:
    async with listening() as (listener, _):
        await listener.next("state")
        assert len(DRAFTS._wakes) == 1
    assert not DRAFTS._wakes


class Hub:
    """What the worker tells, taken in as the hub does; `reads` is whether it takes any."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.reads = True
        self.drafts = Drafts()
        self.told = asyncio.Event()

    def tell(self, message: dict[str, Any]) -> bool:
        if not self.reads and "text" in message:
            return False
        self.lines.append(message)
        self.drafts.hear(json.dumps(message).encode())
        self.told.set()
        return True

    async def until(self, met: Callable[[], bool]) -> None:
        while not met():
            await self.told.wait()
            self.told.clear()

    def text(self) -> str:
        """Of the one draft there is."""
        return next((draft.text for draft in self.drafts._drafts.values()), "")


@pytest.fixture
async def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(execution, "PAUSE_SECONDS", 0)
    return Hub()


def entry(turn: Turn, position: int, role: Role, content: str = "x") -> Entry:
    return Entry(agent_id=turn.agent_id, turn=turn, position=position, role=role, content=content)


@pytest.fixture
async def reporter(hub: Hub) -> AsyncIterator[DraftReporter]:
    """Tells the hub of a turn that was asked something; at its end nobody writes any more."""
    at_work = DraftReporter(Turn(agent_id="pool_a", request_id="r"), hub.tell)
    at_work.stored(entry(at_work.turn, 0, Role.USER))
    work = asyncio.create_task(at_work.work())
    yield at_work
    work.cancel()
    await asyncio.wait([work])
    assert not hub.drafts._drafts


async def test_thousands_of_tiny_pieces_make_few_lines(hub: Hub, reporter: DraftReporter) -> None:
    for number in range(5_000):
        reporter.draft.add(str(number % 10))
    await hub.until(lambda: len(hub.text()) == 5_000)
    assert len(hub.lines) <= 2


async def test_a_hub_that_reads_slowly_gets_all_of_it_later(hub: Hub, reporter: DraftReporter) -> None:
    reporter.draft.add("one ")
    await hub.until(lambda: hub.text() == "one ")
    hub.reads = False
    for _ in range(100):
        reporter.draft.add("two ")
        await asyncio.sleep(0)
    assert hub.text() == "one "
    hub.reads = True
    await hub.until(lambda: hub.text() == "one " + "two " * 100)


async def test_a_long_text_is_told_in_lines_that_fit_and_no_further_than_its_bound(
    hub: Hub, reporter: DraftReporter
) -> None:
    for _ in range(20):
        reporter.draft.add("\U0001f642\x00\n" * 30_000)
    await hub.until(lambda: len(hub.text()) == base.LONGEST_DRAFT)
    assert max(len(line["text"]) for line in hub.lines) == execution.LONGEST_PIECE


async def test_a_result_between_moves_what_is_being_written_behind_it(hub: Hub, reporter: DraftReporter) -> None:
    reporter.draft.add("Then I ")
    await hub.until(lambda: hub.text() == "Then I ")
    reporter.stored(entry(reporter.turn, 1, Role.TOOL))
    reporter.draft.add("say.")
    await hub.until(lambda: hub.text() == "Then I say.")
    assert (hub.lines[-1]["position"], hub.lines[-1]["offset"]) == (2, 0)
    reporter.stored(entry(reporter.turn, 2, Role.ASSISTANT, "Then I say."))
    await hub.until(lambda: hub.text() == "")


async def test_a_worker_tells_the_place_of_the_first_entry_and_what_it_is(
    committed: None, configure: Callable[..., None], plays: Callable[[Take], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(control=True)
    monkeypatch.setattr(execution, "PAUSE_SECONDS", 0)
    hub = Hub()

    async def play(runner: Any, scene: Scene) -> Ended:
        scene.draft.add("Hel")
        await hub.until(lambda: hub.text() == "Hel")
        scene.draft.used(7, 2)
        scene.draft.add("lo")
        await hub.until(lambda: hub.text() == "Hello")
        await scene.say(Role.ASSISTANT, "Hello")
        await hub.until(lambda: hub.text() == "")
        return Ended(TurnStatus.DONE, "Hello")

    plays(play)
    async with at_work(Worker(now(), hub.tell), at_once=True):
        await acreate("ann")
        assert (await ended(await asend("ann"))).status == "done"
    assert [(line["position"], line["text"], tuple(line["tokens"])) for line in hub.lines[:3]] == [
        (1, "Hel", (0, 0)),
        (1, "lo", (7, 2)),
        (2, "", (7, 2)),
    ]
    assert "text" not in hub.lines[-1] and not hub.drafts._drafts


@given(st.lists(st.text(max_size=9)), st.lists(st.booleans()))
def test_pieces_put_together_are_the_text_for_whoever_listens_when(pieces: list[str], listens: list[bool]) -> None:
    told = Drafts()
    with told.listened("pool_a", lambda: None) as listener:
        heard, written = "", ""
        for piece, looks in zip(pieces, [*listens, *[True] * len(pieces)], strict=False):
            said = {"agent": "pool_a", "request_id": "r", "position": 1, "offset": len(written), "text": piece}
            told.hear(json.dumps({**said, "tokens": [0, 0]}).encode())
            written += piece
            if looks and (new := listener.next("r", 1)) is not None:
                heard = heard[: new.offset] + new.text
                assert heard == written
        if (new := listener.next("r", 1)) is not None:
            heard = heard[: new.offset] + new.text
        assert heard == written


PIECE = b'{"agent": "a", "request_id": "r", "position": 1, "offset": 3, "text": "x", "tokens": [0, 0]}'


@pytest.mark.parametrize(
    "line", [b"", b"\n", b"a library says hello\n", b"\xff\xfe", b"{", b"1", b"[]", b"null", b"{}", PIECE]
)
def test_what_is_no_line_of_the_worker_is_passed_over(line: bytes) -> None:
    told = Drafts()
    told.hear(line)
    assert not told._drafts


def test_it_begins_anew_where_the_model_is_asked_again() -> None:
    told = Drafts()
    with told.listened("pool_a", lambda: None) as listener:
        said = {"agent": "pool_a", "request_id": "r", "position": 1, "offset": 0, "tokens": [0, 0]}
        told.hear(json.dumps({**said, "text": "Half a"}).encode())
        assert listener.next("r", 1) is not None
        told.hear(json.dumps({**said, "text": "The"}).encode())
        assert listener.next("r", 1) == agent_stream.Piece("r", 1, 0, "The", 0, 0)
