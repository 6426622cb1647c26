"""Lines of an agent process: what they cost is bounded before they are parsed, since nobody is served meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.control.runners.acp_transport import BoundedLines
from nexus.control.runners.processes import Structure

JSON = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab"\\\n{[,\N{SNOWMAN}')),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.sampled_from('a"\\,')), inner),
)


async def settled() -> None:
    """Nothing is kept waiting."""


async def received(*sent: bytes) -> tuple[list[Any], str]:
    """What messages a stream brings, and why it was ended."""
    reader = asyncio.StreamReader()
    lines = BoundedLines(reader, Mock(), settled)
    for data in sent:
        reader.feed_data(data)
    reader.feed_eof()
    messages = []
    while (message := await lines.receive()) is not None:
        messages.append(message)
    return messages, str(lines.failed or "")


def answer(value: str) -> bytes:
    return b'{"id": 1, "result": %s}\n' % value.encode()


@pytest.mark.parametrize("value", ['"' + "x" * 8_000_000 + '"', json.dumps('{"a": [1, 2]},\\\n' * 200_000)])
async def test_a_long_text_is_taken(value: str) -> None:
    messages, why = await received(answer(value), answer("1"))
    assert [message["result"] for message in messages] == [json.loads(value), 1] and not why


@pytest.mark.parametrize("piece", ["1,", "{},", '{"a":1},', '"",', "[1],"])
async def test_a_line_that_is_dear_to_parse_ends_the_turn_unparsed(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    loads = json.loads

    def counted(line: bytes) -> Any:
        parsed.append(len(line))
        return loads(line)

    monkeypatch.setattr(json, "loads", counted)
    many = 14_000_000 // len(piece)
    messages, why = await received(answer("1"), answer(f"[{piece * many}1]"))
    assert len(messages) == len(parsed) == 1
    assert why.startswith("it sent a line with over")


@pytest.mark.parametrize("error", ['"no"', "[1]", "5", "true"])
async def test_an_answer_that_is_none_ends_the_turn(error: str) -> None:
    messages, why = await received(answer("1"), b'{"id": 1, "error": %s}\n' % error.encode(), answer("2"))
    assert len(messages) == 1 and why == "it answered with an error that is none"


@given(JSON, st.booleans(), st.integers(1, 9))
def test_what_stands_outside_of_texts_is_counted_however_it_is_cut(value: Any, ascii: bool, size: int) -> None:
    line = json.dumps(value, ensure_ascii=ascii).encode()
    structure = Structure()
    for at in range(0, len(line), size):
        structure.add(line[at : at + size])
    assert structure.size == len(re.sub(rb'"(?:[^"\\]|\\.)*"', b"", line))


@given(st.lists(st.binary(max_size=9)))
def test_any_bytes_are_counted(pieces: list[bytes]) -> None:
    structure = Structure()
    for piece in pieces:
        structure.add(piece)
    assert structure.size <= sum(map(len, pieces))
