"""The follower's loop: busy stores, crashes, windows, lines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from coordination.log import follow as following
from coordination.log.follow import Filters
from coordination.management.commands import tail
from coordination.management.commands.tail import CursorFile, TailOptions, as_json, as_text, follow
from coordination.models import Event
from nexus.core.operations.errors import NexusError
from tests.acceptance.hub import START_SECONDS
from tests.conftest import Call
from tests.store import Failure, failing

EVERYTHING = TailOptions("bob", Filters())


class Enough(Exception):
    """Ends a follower once a test has seen what it waited for."""


class Printer:
    """Where a follower's lines go; it ends the follower when it has `until` of them."""

    def __init__(self, until: int) -> None:
        self.until = until
        self.ids: list[int] = []
        self.windows: list[int] = []
        self.kept = 0

    def write(self, events: Iterable[Event]) -> None:
        window = [event.event_id for event in events]
        self.ids += window
        self.windows.append(len(window))

    def persist(self, cursor: int) -> None:
        self.kept = cursor
        if len(self.ids) >= self.until:
            raise Enough


def run(printer: Printer, cursor: int = 0, watch: TailOptions = EVERYTHING) -> None:
    with pytest.raises(Enough):
        asyncio.run(
            asyncio.wait_for(follow(watch, cursor, write=printer.write, persist=printer.persist), START_SECONDS)
        )


@pytest.fixture
def log(committed: None, call: Call, project: str) -> list[int]:
    """The ids of 250 public events."""
    workspace_id = call("workspace_resolve", project_root=project)["workspace_id"]
    events = Event.objects.bulk_create(
        Event(workspace_id=workspace_id, stream="workspace", type="test.made", created_at="2026-01-01T00:00:00Z")
        for _ in range(250)
    )
    return [event.event_id for event in events]


@pytest.fixture
def store_fails(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the next reads of the log fail, or succeed for None: `store_fails("busy", None, "busy")`."""
    monkeypatch.setattr(tail, "BACKOFF_SECONDS", (0.0, 0.0, 0.0))
    really = following.read_events

    def script(*failures: Failure | None) -> None:
        pending = list(failures)

        def read(*arguments: Any) -> following.LogPage:
            if pending and (kind := pending.pop(0)) is not None:
                raise failing(kind)
            return really(*arguments)

        monkeypatch.setattr(following, "read_events", read)

    return script


def test_it_writes_window_by_window_and_keeps_its_place_behind_each(log: list[int]) -> None:
    printer = Printer(until=250)
    run(printer)
    assert printer.ids == log
    assert printer.windows == [100, 100, 50]
    assert printer.kept == log[-1]


def test_it_waits_out_a_busy_store_and_skips_nothing(log: list[int], store_fails: Callable[..., None]) -> None:
    store_fails(*["busy"] * 3, None, *["locked"] * 3)  # a success resets the count
    printer = Printer(until=250)
    run(printer)
    assert printer.ids == log


def test_it_gives_up_on_a_store_that_stays_busy(log: list[int], store_fails: Callable[..., None]) -> None:
    store_fails(*["busy"] * 4)
    with pytest.raises(NexusError) as refusal:
        asyncio.run(follow(EVERYTHING, 0, write=lambda events: None, persist=print))
    assert refusal.value.code == "DB_ERROR"
    assert refusal.value.details == {"retryable": True}


def test_it_fails_at_once_when_waiting_would_not_help(log: list[int], store_fails: Callable[..., None]) -> None:
    store_fails("damaged")
    with pytest.raises(NexusError) as refusal:
        asyncio.run(follow(EVERYTHING, 0, write=lambda events: None, persist=print))
    assert refusal.value.code == "DB_ERROR"
    assert "retryable" not in refusal.value.details


def test_it_repeats_at_most_one_window_after_a_crash(log: list[int]) -> None:
    first = Printer(until=250)
    crash = RuntimeError("between the lines and their place")

    def persist(cursor: int) -> None:
        if len(first.ids) == 200:
            raise crash
        first.persist(cursor)

    with pytest.raises(RuntimeError):
        asyncio.run(follow(EVERYTHING, 0, write=first.write, persist=persist))
    second = Printer(until=150)
    run(second, first.kept)
    assert first.ids + second.ids == log[:200] + log[100:]


def test_it_passes_windows_without_a_line_for_it(log: list[int], call: Call, project: str) -> None:
    call("message_create", project_root=project, from_agent_id="ana", subject="s", body="b")
    printer = Printer(until=1)
    run(printer, watch=TailOptions("bob", Filters(), exclude=None, inbox_only=False))
    assert printer.windows[0] == 100
    quiet = Printer(until=0)
    run(quiet, log[-1], watch=TailOptions("bob", Filters(), exclude="ana"))
    assert (quiet.ids, quiet.kept) == ([], Event.objects.latest("event_id").event_id)


@pytest.fixture
def hostile() -> Event:
    """An event whose texts would move a terminal's cursor, end a line early or reverse the reading direction."""
    event = Event(
        event_id=7,
        workspace_id="w",
        stream="workspace",
        type="message.created",
        actor_agent_id="an\x1b[2Ja",
        payload={"subject": "a\nb\u2028c\x9b1m\u202e", "recipients": ["b\rob"], "channel_id": "ch\x07"},
    )
    event.created_at = datetime(2026, 1, 1, tzinfo=UTC)
    return event


def test_it_makes_lines_that_nothing_in_an_event_can_break(hostile: Event) -> None:
    assert as_json(hostile).isascii()
    assert as_json(hostile).isprintable()
    assert as_text(hostile).isprintable()
    for shown in ("7", "message.created", "an⟨U+001B⟩[2Ja → b ob", "channel_id=ch"):
        assert shown in as_text(hostile)


@pytest.mark.parametrize("content", [b"", b"-1", b"1.5", b"12 13", b"\xff", b"\xd9\xa1", b"9" * 19, b"{}"])
def test_it_refuses_a_file_that_holds_no_cursor(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "cursor"
    path.write_bytes(content)
    with pytest.raises(NexusError) as refusal:
        CursorFile(path).load()
    assert refusal.value.code == "CONFIG_ERROR"
    assert path.read_bytes() == content


def test_it_keeps_a_cursor_in_a_file(tmp_path: Path) -> None:
    file = CursorFile(tmp_path / "cursor")
    assert file.load() is None
    for cursor in (0, 41, 2**63 - 1):
        file.save(cursor)
        assert file.load() == cursor
    assert [path.name for path in tmp_path.iterdir()] == ["cursor"]


def test_it_says_where_a_cursor_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(NexusError) as refusal:
        CursorFile(tmp_path / "missing" / "cursor").save(1)
    assert refusal.value.code == "CONFIG_ERROR"
