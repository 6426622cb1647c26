"""What arrives at once is parsed in rotation among its senders, in order for each."""

from __future__ import annotations

import asyncio
from functools import partial

from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from nexus.core.access import recognise_session
from nexus_site.serving.intake import Intake, sender

ONE_A_ROUND = 0.0  # seconds: each round parses one piece


async def test_one_senders_flood_is_between_nobody_else_and_the_parser() -> None:
    intake, parsed, over = Intake(ONE_A_ROUND), list[str](), asyncio.Event()
    for number in range(2_000):
        intake.queue("flood", partial(parsed.append, f"flood {number}"))
    for _ in range(10):
        await asyncio.sleep(0)
    before = len(parsed)
    intake.queue("other", partial(parsed.append, "other"))
    intake.queue("last", over.set)
    await over.wait()
    assert 0 < before < 20, "other work of the event loop is done between the pieces"
    assert parsed.index("other") <= before + 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=60))
def test_everything_is_parsed_once_and_in_its_senders_order(pieces: list[tuple[str, int]]) -> None:
    async def play() -> list[tuple[str, int]]:
        intake, parsed = Intake(ONE_A_ROUND), list[tuple[str, int]]()
        for piece in pieces:
            intake.queue(piece[0], partial(parsed.append, piece))
        while not intake.is_free and len(parsed) < len(pieces):
            await asyncio.sleep(0)
        return parsed

    parsed = asyncio.run(play())
    for name in "abc":
        assert [piece for piece in parsed if piece[0] == name] == [piece for piece in pieces if piece[0] == name]


async def test_a_piece_that_fails_keeps_no_other_from_its_turn() -> None:
    intake, parsed, failures = Intake(ONE_A_ROUND), asyncio.Event(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))

    def fail() -> None:
        raise ValueError

    intake.queue("one", fail)
    intake.queue("two", parsed.set)
    await parsed.wait()
    assert [type(failure) for failure in failures] == [ValueError]


def request(*headers: str, target: str = "/mcp") -> bytes:
    return "\r\n".join([f"POST {target} HTTP/1.1", "Host: localhost", *headers, "", "body"]).encode("latin-1")


def test_it_knows_who_sent_a_request_from_its_first_bytes() -> None:
    recognise_session("k" * 32)
    assert sender(request(f"cookie: a=1; {settings.SESSION_COOKIE_NAME}={'k' * 32}"), "10.0.0.7").startswith("login:")
    assert sender(request("Authorization: Bearer nxs_x"), "10.0.0.7") == "stranger:10.0.0.7"
    assert sender(request(target="/mcp?api_key=nxs_x"), "10.0.0.7") == "stranger:10.0.0.7"
    assert sender(request(), "10.0.0.7") == "address:10.0.0.7"


@given(st.binary(max_size=300))
def test_any_bytes_have_a_sender(data: bytes) -> None:
    assert sender(data, None)
    assert sender(b"GET /?" + data + b"\r\ncookie: " + data, "10.0.0.7")
