"""Reservations that others asked for, and whose holder does not answer, need a person."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.test import Client

from core.apps import needs
from core.clock import now
from core.contributions import Need
from files import attention
from files.models import Reservation
from inbox.picture import Picture
from tests.conftest import Call
from tests.files.conftest import Project

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


def asked() -> list[Need]:
    found = {kind.name: these for kind, these in needs(Picture(now()), 3)}
    return list(found["asked-files"].needs) if "asked-files" in found else []


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


def test_an_operator_ends_it_right_there(held: str, clock: time_machine.Traveller) -> None:
    clock.shift(LONG)
    browser = Client(headers={"host": "127.0.0.1:8420"})
    assert f'value="files_end {held}"' in browser.get("/admin/attention/").text
    form = {"do": "files_end", "on": held, "asked": "1", "reason": "bob waits", "next": "/admin/"}
    assert "“src/parser.py” was ended." in browser.post("/admin/act/", form, follow=True).text
    assert Reservation.objects.get().outcome == "released"
    assert asked() == []
