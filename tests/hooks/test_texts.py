"""Nothing that another agent wrote can pass for anything but its text, and a notice never fills a context."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from coordination.provenance import behalf_in_words
from nexus.core.contributions import StartedBy
from nexus.core.quoting import quoted
from nexus.hooks import texts

TEXT = st.text(st.characters(codec="utf-8"), max_size=300)
UNPROVEN = "an agent; it showed no key"
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def row(kind: str, sender: str, subject: str, body: str, **proven: str) -> dict[str, str]:
    return {
        f"{kind}_id": f"{kind}-1",
        "from_agent_id": sender,
        "subject": subject,
        "title": subject,
        "body": body,
        "payload": body,
        **proven,
    }


@given(sender=TEXT, role=TEXT, subject=TEXT, body=TEXT, agents=st.lists(TEXT, min_size=2, max_size=6), operator=TEXT)
def test_it_has_the_same_lines_whatever_is_written(
    sender: str, role: str, subject: str, body: str, agents: list[str], operator: str
) -> None:
    behalf = behalf_in_words(StartedBy(agents, f"o{operator}", sender))
    text = texts.waiting_text(
        agent_id="builder",
        project_root="/p",
        messages=[row("message", sender, subject, body)],
        handoffs=[row("handoff", sender, subject, body, from_proof="key", on_behalf_of=behalf)],
        unread=1,
        roles={sender: role},
    )
    lines = text.split("\n")
    assert [line[:10] for line in lines] == [
        "[nexus] Yo",
        "The quoted",
        "- message ",
        '  body: "' + lines[3][9:10],
        "Receive yo",
        "- handoff ",
        "  payload:",
        "Take one w",
        "",
    ]
    assert all(letter.isprintable() for letter in text if letter != "\n")
    assert not {"<", ">", "`"} & set(text)
    by, levels = f" ({UNPROVEN}; role )", "a level" if len(agents) == 2 else f"{len(agents) - 1} levels"
    starter = f"agent , {levels} below agent , which operator  started below agent "
    proven = f" (an agent, proven by its key; on behalf of {starter}; role )"
    outside = STRING.sub("", lines[2] + lines[3] + lines[5] + lines[6])
    assert (
        outside.replace(" (cut)", "")
        == f"- message message-1 from {by}:   body: - handoff handoff-1 from {proven}:   payload: "
    )


@given(TEXT)
def test_it_quotes_so_that_the_text_comes_back(text: str) -> None:
    shown = quoted(text, 100)
    whole = shown.removesuffix(" (cut)")
    assert len(whole) <= 102
    back = json.loads(whole)
    assert text.startswith(back)
    assert (back == text) == (whole == shown)


def test_it_stays_below_what_a_harness_takes() -> None:
    behalf = behalf_in_words(StartedBy(["\0" * 255] * 6, "\u202e" * 255, "\0" * 255))
    hostile = row("message", "\u202e" * 255, "\n" * 65_536, "\0" * 65_536, from_proof="key", on_behalf_of=behalf)
    text = texts.waiting_text(
        agent_id="b" * 255,
        project_root="/" + "p" * 250,
        messages=[hostile] * 200,
        handoffs=[{**hostile, "handoff_id": "hnd_" + "0" * 32}] * 200,
        unread=10**6,
        roles={hostile["from_agent_id"]: "\0" * 255},
    )
    assert len(text) < 10_000
