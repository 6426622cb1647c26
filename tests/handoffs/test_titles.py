"""What a handoff is called: by its creator, or by what its payload says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordination.models import Event
from coordination.toolset import run
from handoffs.models import MAX_TITLE, title_of
from nexus.core.operations.caller import Caller
from tests.conftest import Call
from tests.handoffs.conftest import TO_BOB, Offer, mail_of

TARGET: Any = {"strategy": "capability", "capability": "python"}


@pytest.mark.parametrize(
    ("payload", "title"),
    [
        ("Fix the login\nIt fails for guests.", "Fix the login"),
        ("\n\n   Fix  the\tlogin  ", "Fix the login"),
        ('{"title": "Fix the login", "task": "other"}', "Fix the login"),
        ('{"title": "", "task": 7, "instructions": "Read it\\nthen fix"}', "Read it"),
        ('{"summary": "In short"}', "In short"),
        ('{"file": "a.py"}', "Work for capability python"),
        ("[2]", "Work for capability python"),
        ("{not json", "{not json"),
        (None, "Work for capability python"),
        (" \n ", "Work for capability python"),
        ("\u200b\n\u0301\n\x1b[31mFix\x07 it\u202e", "[31mFix it"),
        ('{"title": "\u200b\ufeff"}', "Work for capability python"),
        ("x" * 300, "x" * (MAX_TITLE - 1) + "…"),
    ],
)
def test_it_is_called_what_its_payload_says_first(payload: str | None, title: str) -> None:
    assert title_of(payload, TARGET) == title


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), st.lists).map(json.dumps), st.just("[" * 50_000)))
def test_whatever_it_says_it_has_a_title_of_one_line(payload: str) -> None:
    title = title_of(payload, TARGET)
    assert title.strip() and len(title) <= MAX_TITLE and len(title.splitlines()) == 1


HOSTILE = '"; DROP TABLE handoffs; -- <script>alert(1)</script> *#`[x](y)'


def test_it_has_the_title_that_its_creator_gives_in_one_line(call: Call, offer: Offer, project: str) -> None:
    for given_title, title in (("Fix  the login\nnow", "Fix the login"), (" \n ", "the work"), (HOSTILE, HOSTILE)):
        handoff = offer(title=given_title, payload="the work")
        shown = call("handoff_get", project_root=project, handoff_id=handoff, agent_id="ana")
        assert shown["title"] == title


def test_its_events_and_notices_tell_the_title(call: Call, offer: Offer, project: str) -> None:
    handoff = offer(title="Fix the login", target=TO_BOB)
    at = {"project_root": project, "handoff_id": handoff, "agent_id": "bob"}
    call("handoff_claim", **at)
    call("handoff_complete", **at, result="done")

    assert [message["subject"] for message in mail_of(call, "bob")] == ["“Fix the login” is for you"]
    [told] = mail_of(call, "ana")
    assert told["subject"] == "“Fix the login” was completed"
    assert handoff in told["body"]
    assert {event.payload["title"] for event in Event.objects.filter(handoff_id=handoff)} == {"Fix the login"}


def test_shared_md_tells_the_title_of_what_is_public_alone(call: Call, offer: Offer, workspace: str) -> None:
    offer(title=HOSTILE)
    offer(title="Quietly fix the login", visibility="private")

    path = call("shared_md_render", workspace_id=workspace)["path"]
    text = Path(path).read_text()

    assert "DROP TABLE" in text and " <script>" not in text
    assert "Quietly" not in text


def test_an_agent_sees_no_title_of_what_it_may_not_see(offer: Offer, project: str) -> None:
    offer(title="Quietly fix the login", target=TO_BOB, visibility="private")

    cleo = Caller(transport="test", agent_id="cleo")
    seen = run(cleo, "event_get", {"project_root": project, "agent_id": "cleo", "stream": "handoff"})

    assert "Quietly" not in str(seen)
