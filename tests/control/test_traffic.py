"""What stands in an agent's log of raw traffic, however its provider's answer comes in pieces."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from nexus.control.runners import recording, traffic
from nexus.core.logs import redact

OWN = "0123 4567-89" * 8  # the agent's, which no pattern knows
KEYS = [
    OWN,
    *("sk-" + "0123456789" * 2, "ghp_" + "0123456789" * 4, "nxk_" + "0123456789" * 5, "github_pat_" + "0123456789" * 8),
    *("nxs_" + "012345678901" * 4, "012345678901" * 4, "api_key=0123456789", "sk-" + "0123456789" * 30),
]
TALK = st.text('xyz ,"\n', max_size=150)


class Answer(httpx2.AsyncByteStream):
    """An answer in pieces; one that `breaks` off ends in an error."""

    def __init__(self, pieces: Sequence[bytes], breaks: bool = False) -> None:
        self.pieces, self.breaks = pieces, breaks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece
        if self.breaks:
            raise httpx2.ReadError("it hung up")


def logged(answer: Answer) -> list[dict[str, Any]]:
    """The lines of the log, of one answer; whoever reads the answer has all of it."""

    async def read() -> list[bytes]:
        sent = recording.Recording(httpx2.MockTransport(lambda request: httpx2.Response(200, stream=answer)), log)
        response = await sent.handle_async_request(httpx2.Request("GET", "http://localhost"))
        got: list[bytes] = []
        try:
            async for piece in response.stream:  # type: ignore[union-attr]
                got.append(piece)
        except httpx2.ReadError:
            assert answer.breaks
        return got

    log = traffic.Log("ann", OWN)
    log.path.unlink(missing_ok=True)
    assert asyncio.run(read()) == list(answer.pieces)
    lines = [json.loads(line) for line in log.path.read_text().splitlines()]
    return [line for line in lines if line["what"] == "received"]


@pytest.fixture(autouse=True)
def lines_of_a_hundred(configure: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer ones are too long."""
    configure(home=tmp_path)
    monkeypatch.setattr(recording, "LONGEST_LINE", 100)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TALK, st.sampled_from(KEYS), TALK, st.integers(1, 250), st.booleans())
@example("x" * 90, KEYS[1], "", 101, False)  # cut where its pattern does not know it yet
@example("x" * 90, KEYS[-1], "", 250, False)  # and in its middle
@example("x" * 90, OWN, "", 170, False)
@example("", OWN, "", 6, True)  # where the answer breaks off
def test_no_piece_of_a_key_is_left_wherever_its_line_is_cut(
    before: str, key: str, after: str, size: int, breaks: bool
) -> None:
    said = f'{before} "{key}" {after}'.encode()
    if breaks:
        said = said[: -len(after) - size % len(key)]
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    left = "".join(line["text"] for line in logged(Answer(pieces, breaks)))
    assert not any(digits in left for digits in ("0123", "4567", "89")), left


def test_of_a_line_that_is_too_long_its_beginning_is_logged_and_the_next_one_whole() -> None:
    long = b"a" * 80 + b"b" * 80
    [beginning, rest] = logged(Answer([long[:120], long[120:], b"c" * 500, b"c\nnext", b" line\n"]))
    assert set(beginning["text"]) == {"a"} and beginning["rest"] == "left out"
    assert rest["text"] == "next line" and "rest" not in rest


def test_what_comes_together_and_what_ends_without_a_line_break_is_logged_whole() -> None:
    told = logged(Answer([b"one\ntwo\nth", b"ree"]))
    assert [(line["text"], "rest" in line) for line in told] == [("one\ntwo", False), ("three", False)]


def test_a_place_where_nothing_can_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way")
    traffic.Log("ann").write("request", "Hello")
    assert (tmp_path / "logs").read_text() == "in the way"


def test_of_a_long_request_no_more_is_read_than_is_kept_and_no_piece_of_a_key_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[int] = []

    def redacted(text: str) -> str:
        read.append(len(text))
        return redact(text)

    monkeypatch.setattr(traffic, "redact", redacted)
    monkeypatch.setattr(traffic, "LONGEST", 1_000)
    for key in KEYS:
        for cut in [5, 20, 45]:
            said = (
                f"api_key={'0123456789' * 150}&".ljust(2_000 - cut, "x") + key + "y" * 9_000
            )  # what is struck makes room
            log = traffic.Log("ann", OWN)
            log.path.unlink(missing_ok=True)
            log.write("request", said)
            [line] = [json.loads(line) for line in log.path.read_text().splitlines()]
            assert max(read) <= 2_000
            assert "xxx" in line["text"] and not any(digits in line["text"] for digits in ("0123", "4567", "89"))
