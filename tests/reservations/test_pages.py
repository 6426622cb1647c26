"""The pages of reserved files."""

from __future__ import annotations

import re
from pathlib import Path

from django.test import Client

from coordination.models import Event
from handoffs.models import Handoff
from nexus.reservations.models import Reservation
from tests.conftest import Call
from tests.reservations.conftest import Project
from tests.reservations.test_holding import claimed


def text(browser: Client, path: str) -> str:
    return re.sub(r"\s+", " ", browser.get(path).content.decode())


def test_it_lists_what_is_held_and_what_was(db: None, browser: Client, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    [kept, given_up] = shop.reserve("ann", "src/", "docs/", reason="the parser")
    shop.call("release", agent_id="ann", reservation_ids=[given_up])
    held, ended = text(browser, "/admin/files/"), text(browser, "/admin/files/?state=ended")
    assert "/src/" in held and "the parser" in held and "/docs/" not in held
    assert "/docs/" in ended and "Released" in ended and kept not in ended
    assert "Nothing fits." in text(browser, "/admin/files/?q=zzz")


def test_it_names_the_handoff_that_files_are_held_for(db: None, browser: Client, call: Call, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    handoff = claimed(shop, call)
    [held] = shop.reserve("ann", "src/", handoff_id=handoff)
    title = Handoff.objects.get().title
    assert title and all(title in text(browser, path) for path in ("/admin/files/", f"/admin/files/{held}/"))


def test_it_says_once_what_files_are_held_for(db: None, browser: Client, call: Call, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    handoff = claimed(shop, call)
    Handoff.objects.update(title="Fix the login")
    shop.reserve("ann", "src/", handoff_id=handoff, reason="Fix the login")
    assert text(browser, "/admin/files/").count("Fix the login") == 1


def test_it_turns_pages(db: None, browser: Client, tmp_path: Path) -> None:
    Project(tmp_path).reserve("ann", *(f"file_{number}.py" for number in range(60)))
    assert "file_59.py" not in text(browser, "/admin/files/")
    assert "file_59.py" in text(browser, "/admin/files/?page=2")


def test_it_ends_a_reservation_and_says_who_did(db: None, browser: Client, tmp_path: Path) -> None:
    [held] = Project(tmp_path).reserve("ann", "src/")
    answer = browser.post(f"/admin/files/{held}/", {"reason": "left behind"}, follow=True)
    assert "The reservation is ended." in answer.content.decode()
    assert Reservation.objects.get().outcome == "released"
    event = Event.objects.get(type="file.released")
    assert event.payload["operator"] and event.payload["why"] == "left behind"
    again = browser.post(f"/admin/files/{held}/", {"reason": ""}, follow=True).content.decode()
    assert "has ended" in again and "End the reservation" not in again
    assert browser.get("/admin/files/rsv_0/").status_code == 404
