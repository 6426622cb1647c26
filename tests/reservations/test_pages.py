"""The admin's list of reservations."""

from __future__ import annotations

import re
from pathlib import Path

from django.test import Client

from coordination.models import Event
from handoffs.models import Handoff
from nexus.reservations.models import Reservation
from tests.conftest import Call
from tests.pages import queries
from tests.reservations.conftest import Project
from tests.reservations.test_holding import claimed

LIST = "/admin/files/reservation/"


def text(browser: Client, path: str) -> str:
    return re.sub(r"\s+", " ", browser.get(path).content.decode())


def test_it_lists_what_is_held_and_what_was(db: None, browser: Client, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    [kept, given_up] = shop.reserve("ann", "src/", "docs/", reason="the parser")
    shop.call("release", agent_id="ann", reservation_ids=[given_up])
    held, ended = text(browser, LIST), text(browser, f"{LIST}?state=ended")
    assert "/src/" in held and "the parser" in held and "/docs/" not in held
    assert "/docs/" in ended and "Released" in ended and kept not in ended
    assert "Nothing fits." in text(browser, f"{LIST}?q=zzz")


def test_it_names_the_handoff_that_files_are_held_for(db: None, browser: Client, call: Call, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    handoff = claimed(shop, call)
    [held] = shop.reserve("ann", "src/", handoff_id=handoff)
    title = Handoff.objects.get().title
    assert title and all(title in text(browser, path) for path in (LIST, f"{LIST}{held}/change/"))


def test_it_says_once_what_files_are_held_for(db: None, browser: Client, call: Call, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    handoff = claimed(shop, call)
    Handoff.objects.update(title="Fix the login")
    shop.reserve("ann", "src/", handoff_id=handoff, reason="Fix the login")
    assert text(browser, LIST).count("Fix the login") == 1


def test_it_turns_pages_with_as_many_queries_for_many_as_for_few(db: None, browser: Client, tmp_path: Path) -> None:
    shop = Project(tmp_path)
    shop.reserve("ann", *(f"early_{number}.py" for number in range(3)))
    few = queries(lambda: browser.get(LIST))
    shop.reserve("ann", *(f"file_{number}.py" for number in range(60)))
    assert "file_59.py" not in text(browser, LIST) and "file_59.py" in text(browser, f"{LIST}?p=2")
    assert queries(lambda: browser.get(LIST)) <= few + 1  # that there is a next page


def test_it_ends_a_reservation_and_says_who_did(db: None, browser: Client, tmp_path: Path) -> None:
    [held] = Project(tmp_path).reserve("ann", "src/")
    page = f"{LIST}{held}/change/"
    assert f'value="files_end {held}"' in text(browser, page)
    end = {"do": "files_end", "on": held, "asked": "1", "next": page, "reason": "left behind"}
    assert "was ended" in browser.post("/admin/act/", end, follow=True).content.decode()
    assert Reservation.objects.get().outcome == "released"
    event = Event.objects.get(type="file.released")
    assert event.payload["operator"] and event.payload["why"] == "left behind"
    assert "has ended" in browser.post("/admin/act/", end, follow=True).content.decode()
    assert "files_end" not in text(browser, page)


def test_the_old_addresses_lead_there(db: None, browser: Client, tmp_path: Path) -> None:
    [held] = Project(tmp_path).reserve("ann", "src/")
    assert browser.get("/admin/files/?state=ended").headers["Location"] == f"{LIST}?state=ended"
    assert browser.get(f"/admin/files/{held}/").headers["Location"] == f"{LIST}{held}/change/"
