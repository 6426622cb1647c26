"""Reservations that others asked for, and whose holder does not answer, need a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
import time_machine
from django.test import Client

from coordination.log.sentences import lines
from coordination.models import Event
from handoffs.debts import notify_creditors
from inbox.monitoring import Picture
from nexus.core.apps import needs
from nexus.core.clock import now
from nexus.core.contributions import AttentionItem
from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import run
from nexus.reservations import attention
from nexus.reservations.models import Reservation
from nexus.reservations.services import MOST_REFUSED
from nexus.reservations.toolset import FILES
from tests.conftest import Call, at_once
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
    assert [(need.subject, need.detail) for need in found["debts"].needs] == [("ana", "question src/parser.py to cleo")]
    assert [(need.subject, need.detail) for need in found["idle"].needs] == [(handoff, "ana has it and does nothing")]
    page = Client(headers={"host": "127.0.0.1:8420"}).get("/admin/agents/ana/").text
    owes = page.partition("Must still do")[2].partition("Inbox")[0]
    assert f"/admin/files/reservation/{held}/change/" in owes and f"/admin/handoffs/handoff/{handoff}/change/" in owes


def test_an_operator_ends_it_right_there(held: str, clock: time_machine.Traveller) -> None:
    clock.shift(LONG)
    browser = Client(headers={"host": "127.0.0.1:8420"})
    assert f'value="files_end {held}"' in browser.get("/admin/attention/").text
    form = {"do": "files_end", "on": held, "asked": "1", "reason": "bob waits", "next": "/admin/"}
    assert "“src/parser.py” was ended." in browser.post("/admin/act/", form, follow=True).text
    assert Reservation.objects.get().outcome == "released"
    assert asked() == []


def refuse(reservation_id: str, agent_id: str | None, verb: str = "commit") -> list[str]:
    """Record what the guard refused; return the reservations for which that is new."""
    about = {"reservation_ids": [reservation_id], "paths": ["src/parser.py"], "verb": verb, "agent_id": agent_id}
    body = run(FILES, Caller("test", operator="ada", connection="test:guard"), "files_record_refusal", about)
    assert body["ok"], body
    ids: list[str] = body["data"]["reservation_ids"]
    return ids


def refused() -> list[AttentionItem]:
    found = {kind.name: these for kind, these in needs(Picture(now()), 3)}
    return list(found["refused"].needs) if "refused" in found else []


def test_a_refused_commit_needs_a_person_once_for_each_agent(held: str, clock: time_machine.Traveller) -> None:
    first = now()
    assert refuse(held, "bob") == [held]
    clock.shift(timedelta(minutes=1))
    assert refuse(held, "bob") == [] == refuse(held, "bob", "push")
    assert refuse(held, None, "push") == [held]
    [need] = refused()
    assert (need.subject, need.title, need.since) == (held, "src/parser.py", first)
    assert need.detail == "ana holds it; refused: a commit of bob, a push of a person"
    events = Event.objects.filter(type="file.refused").order_by("event_id")
    assert [(row.actor_agent_id, row.payload.get("operator")) for row in events] == [("bob", None), (None, "ada")]
    [said] = ["".join(part.text for part in line.parts) for line in lines(list(events[:1]))]
    assert said == "The guard refused a commit of bob: ana holds src/parser.py"


def test_a_refusal_is_dismissed_until_another_agent_is_refused(held: str) -> None:
    refuse(held, "bob")
    browser = Client(headers={"host": "127.0.0.1:8420"})
    assert "a commit of" in browser.get(f"/admin/files/reservation/{held}/change/").text
    dismiss = {"do": f"files_dismiss_refusals {held}", "next": "/admin/"}
    assert "“src/parser.py” was dismissed." in browser.post("/admin/act/", dismiss, follow=True).text
    assert "No refusal for this reservation is left." in browser.post("/admin/act/", dismiss, follow=True).text
    assert refuse(held, "bob") == [] and refused() == []
    refuse(held, "cleo")
    assert [need.detail for need in refused()] == ["ana holds it; refused: a commit of cleo"]


def test_a_refusal_is_over_with_the_reservation(held: str, shop: Project) -> None:
    refuse(held, "bob")
    shop.call("release", agent_id="ana")
    assert refused() == [] and refuse(held, "cleo") == []


def test_a_reservation_names_few_refused_agents(held: str) -> None:
    new = [refuse(held, f"agent-{number}") for number in range(MOST_REFUSED + 5)]
    assert new == [[held]] * MOST_REFUSED + [[]] * 5


def test_refusals_at_the_same_moment_are_all_recorded(committed: None, held: str) -> None:
    at_once([partial(refuse, held, f"agent-{number}") for number in range(5)])
    assert len(Reservation.objects.get().refused) == 5
