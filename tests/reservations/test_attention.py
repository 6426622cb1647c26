"""Reservations that others asked for, and whose holder does not answer, need a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.test import Client

from handoffs.debts import notify_creditors
from inbox.monitoring import Picture
from nexus.core.apps import needs
from nexus.core.clock import now
from nexus.core.contributions import AttentionItem
from nexus.reservations import attention
from nexus.reservations.models import Reservation
from tests.conftest import Call
from tests.reservations.conftest import Project

LONG = timedelta(hours=1)


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    """Now, standing still until the test moves it: ids carry their time."""
    with time_machine.travel(datetime.now(UTC).replace(microsecond=0), tick=False) as clock:
        yield clock


@pytest.fixture
def held(shop: Project, team: None, clock: time_machine.Traveller) -> str:
    """What ana holds for a day, and cleo and bob asked for, one minute after the other."""
    [reservation] = shop.reserve("ana", "src/parser.py", seconds=86_400)
    for agent in ("cleo", "bob"):
        clock.shift(timedelta(minutes=1))
        assert shop.refused("reserve", agent_id=agent, paths=["src/"], ask=True)["code"] == "FILES_RESERVED"
    return reservation


def asked() -> list[AttentionItem]:
    found = {kind.name: these for kind, these in needs(Picture(now()), 3)}
    return list(found["asked-files"].needs) if "asked-files" in found else []


def owed(call: Call, agent_id: str = "ana") -> list[tuple[str, str, str, str]]:
    """Kind, id, what and to whom."""
    return [(row["kind"], row["id"], row["what"], row["to"]) for row in call("handoff_mine", agent_id=agent_id)["owes"]]


def test_the_holder_owes_an_answer_to_who_asked_first(
    held: str, clock: time_machine.Traveller, call: Call, shop: Project
) -> None:
    assert owed(call) == [("question", held, "src/parser.py", "cleo")]
    assert owed(call, "bob") == owed(call, "cleo") == []
    clock.shift(timedelta(minutes=1))
    said = {"project_root": str(shop.root), "from_agent_id": "ana", "subject": "Tomorrow", "body": "b"}
    call("message_create", **said, target={"strategy": "direct", "agent_id": "cleo"})
    assert owed(call) == [("question", held, "src/parser.py", "bob")]
    shop.call("release", agent_id="ana", reservation_ids=[held])
    assert owed(call) == []


def test_word_of_what_the_holder_owes_is_no_answer_of_it(held: str, clock: time_machine.Traveller, call: Call) -> None:
    clock.shift(LONG)
    notify_creditors()

    assert f"ana owes you the question {held}" in call("inbox_peek", agent_id="cleo")["messages"][-1]["subject"]
    assert owed(call) == [("question", held, "src/parser.py", "cleo")]


def test_it_tells_who_asked_in_vain_and_since_when(held: str, clock: time_machine.Traveller) -> None:
    assert asked() == []  # the holder has time to answer
    first = now() - timedelta(minutes=1)
    clock.shift(LONG)
    [need] = asked()
    assert (need.subject, need.title, need.since) == (held, "src/parser.py", first)
    assert need.detail == "ana holds it and has not answered cleo, bob"


def test_it_forgets_whom_the_holder_wrote_to(
    held: str, clock: time_machine.Traveller, call: Call, shop: Project
) -> None:
    said = {"project_root": str(shop.root), "from_agent_id": "ana", "subject": "Tomorrow", "body": "b"}
    clock.shift(timedelta(minutes=5))
    call("message_create", **said, target={"strategy": "direct", "agent_id": "cleo"})
    clock.shift(LONG)
    assert [need.detail for need in asked()] == ["ana holds it and has not answered bob"]
    call("message_create", **said, target={"strategy": "direct", "agent_id": "bob"})
    assert asked() == []


def test_it_forgets_what_is_given_up(held: str, clock: time_machine.Traveller, shop: Project) -> None:
    clock.shift(LONG)
    shop.call("release", agent_id="ana")
    assert asked() == []


def test_it_tells_of_questions_that_the_log_has_no_more(
    held: str, clock: time_machine.Traveller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "LOOKED_BACK", 0)
    clock.shift(LONG)
    assert asked()[0].since == Reservation.objects.get().created_at


def test_a_holder_who_is_there_and_idle_stands_once_with_everything_it_owes(
    held: str, clock: time_machine.Traveller, call: Call, shop: Project
) -> None:
    place = {"project_root": str(shop.root)}
    clock.shift(timedelta(minutes=1))
    handoff = call("handoff_create", **place, from_agent_id="bob", title="Fix the login", visibility="public",
                   target={"strategy": "broadcast"})["handoff_id"]  # fmt: skip
    call("handoff_claim", **place, handoff_id=handoff, agent_id="ana", lease_seconds=86_400)
    session = call("session_open", agent_id="ana", workspace_id=Reservation.objects.get().workspace_id)["session_id"]
    clock.shift(LONG)
    call("session_heartbeat", session_id=session)
    found = {kind.name: these for kind, these in needs(Picture(now()), 3)}
    assert "asked-files" not in found
    assert [(need.subject, need.detail) for need in found["debts"].needs] == [
        ("ana", "question src/parser.py to cleo; handoff Fix the login to bob")
    ]
    page = Client(headers={"host": "127.0.0.1:8420"}).get("/admin/agents/ana/").text
    owes = page.partition('id="owes"')[2].partition("</section>")[0]
    assert f"/admin/files/{held}/" in owes and f"/admin/board/{handoff}/" in owes


def test_an_operator_ends_it_right_there(held: str, clock: time_machine.Traveller) -> None:
    clock.shift(LONG)
    browser = Client(headers={"host": "127.0.0.1:8420"})
    assert f'value="files_end {held}"' in browser.get("/admin/attention/").text
    form = {"do": "files_end", "on": held, "asked": "1", "reason": "bob waits", "next": "/admin/"}
    assert "“src/parser.py” was ended." in browser.post("/admin/act/", form, follow=True).text
    assert Reservation.objects.get().outcome == "released"
    assert asked() == []
