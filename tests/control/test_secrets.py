"""What an agent process was given stands in nothing that is told, however it is cut into pieces."""

from __future__ import annotations

import json
import re
from typing import Any

import acp
import pytest
from acp.schema import ToolCallUpdate
from hypothesis import given
from hypothesis import strategies as st

from nexus.control.agents.questions import Decision
from nexus.control.models import PoolAgent, Role, Turn
from nexus.control.runners import acp_client
from nexus.control.runners.acp_client import PoolClient, Terminals
from nexus.control.runners.base import STRUCK, Draft, Scene, Secrets

KEY = "nxs_0123456789abcdef"
PIECES = st.lists(st.text("ab", max_size=4), max_size=30)
SOME = st.lists(st.text("ab", min_size=6, max_size=9), max_size=4)


def draft(*values: str) -> Draft:
    written = Draft()
    written.secrets = Secrets(*values)
    return written


def test_what_only_began_like_one_is_told() -> None:
    written = draft(KEY)
    for piece in ("It begins with nxs", "_01", " and goes on."):
        written.add(piece)
    assert written.text == "It begins with nxs_01 and goes on."


def test_what_was_held_back_goes_with_the_draft_that_it_ended() -> None:
    written = draft(KEY)
    written.add("nxs_")
    written.restart()
    written.add("Anew")
    assert written.text == "Anew"


@given(SOME, PIECES)
def test_a_draft_is_as_far_as_it_is_sure_what_stands_in_the_entry(values: list[str], pieces: list[str]) -> None:
    written, secrets = draft(*values), Secrets(*values)
    entry = secrets.struck("".join(pieces))
    for number, piece in enumerate(pieces):
        written.add(piece)
        assert entry.startswith(written.text)
        rest = secrets.struck("".join(pieces[: number + 1]))[len(written.text) :]
        # What may be the beginning of one, and the mark of a complete one that this begins in.
        assert len(rest) <= max(map(len, values), default=0) + len(STRUCK)


def test_of_one_that_begins_with_another_nothing_stays() -> None:
    assert Secrets("abcdef", "abcdefgh").struck("abcdefgh abcdef") == "*** ***"


def test_one_with_quotes_is_struck_from_what_is_stored_as_json() -> None:
    secret = json.dumps({"private_key": 'a"b\\c\n'})
    told = Secrets(secret).struck_of({"calls": [{"env": secret, secret: 1, "n": None}]})
    assert told == {"calls": [{"env": "***", "***": 1, "n": None}]}


class Told:
    """What a client says and asks of what an agent process tells it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        agent = PoolAgent(preset="trusted", cwd="/srv", depth=0)
        scene: Any = Scene(agent, Turn(turn_id="turn"), [], self.say, self.ask, None, draft(KEY))  # type: ignore[arg-type]
        self.client = PoolClient(scene, Terminals(scene.agent, lambda command, cwd: [], {}), 100)

    async def say(self, role: Role, content: str, *, tool_call_id: str | None = None, meta: Any = None) -> None:
        self.texts += [content, json.dumps(meta)]

    async def ask(self, kind: str, title: str, detail: str, *, subject: str, action: Any = None) -> Decision:
        self.texts += [title, detail]
        return Decision(False)


@pytest.mark.parametrize("seen", [1, 4, 19])  # characters of the key before the cut
async def test_what_is_cut_ends_in_no_beginning_of_a_secret(seen: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def long(most: int) -> str:
        return "x" * (most - seen) + KEY + "x" * 100

    monkeypatch.setattr(acp_client, "LONGEST_TEXT", 5_000)
    monkeypatch.setattr(acp_client, "LONGEST_DETAIL", 4_000)
    told = Told()
    start = acp.start_tool_call("a", long(1_000), kind="other", raw_input={"a": long(4_000 - len('{"a": "'))})
    result = acp.update_tool_call("a", status="completed", content=[acp.tool_content(acp.text_block(long(5_000)))])
    planned = acp.update_plan([acp.plan_entry(long(4_000))])
    for update in (start, result, planned, acp.update_agent_message_text(long(5_000))):
        await told.client.session_update("s", update)
    await told.client.finish()
    call = ToolCallUpdate(tool_call_id="b", title=long(500), kind="other", raw_input={"a": long(4_000 - 9)})
    await told.client.request_permission("s", call, [])
    assert sum("x" * 400 in text for text in told.texts) == 7  # the result tells its input, too
    assert [text[-40:] for text in told.texts if re.search("x" + KEY[:seen], text)] == []
