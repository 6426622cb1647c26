"""Notices: what needs a person goes to services and browsers outside, once; a link in one answers a question."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from aiosmtpd.controller import Controller
from django.contrib.auth.models import User
from django.test import Client

from coordination.toolset import run
from nexus.control.models import Question
from nexus.control.toolset import CONTROL
from nexus.core.background_work import work_once
from nexus.core.config import parse
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import NexusError
from nexus.hooks import notices
from nexus.hooks.models import NoticeAddress
from tests.conftest import Call
from tests.hooks.receiver import receiver
from tests.pages import NASTY
from tests.ports import free_port

__all__ = ["receiver"]

ADA = Caller("test", operator="ada")
PHONE = {"REMOTE_ADDR": "203.0.113.9", "HTTP_HOST": "nexus.example.org"}
Ask = Callable[..., str]


class Outside:
    """The services of all addresses: what they were sent, and how the next attempt ends."""

    def __init__(self) -> None:
        self.got: list[notices.Notice] = []
        self.outcome = notices.NoticeResult()

    def send(self, notice: notices.Notice) -> notices.NoticeResult:
        self.got.append(notice)
        return self.outcome


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Outside:
    """Nothing leaves the process: the tests below play the program that sends."""
    outside = Outside()
    monkeypatch.setattr(notices, "send", outside.send)
    return outside


@pytest.fixture(autouse=True)
def worker(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """A hub that knows nothing of other tests, and a hub with a name."""
    settings.NEXUS = settings.NEXUS.replaced(public_url="https://nexus.example.org")
    settings.ALLOWED_HOSTS = ["*"]
    monkeypatch.setattr(notices, "NOTICES", notices.Notices())


@pytest.fixture
def ask(db: None) -> Ask:
    run(Caller("test"), "agent_register", {"agent_id": "ana"})

    def ask(title: str = "Run make?", **more: Any) -> str:
        arguments = {"agent_id": "ana", "kind": "permission", "title": title, "timeout_seconds": 0, **more}
        envelope = dispatch.run(CONTROL, Caller("test"), "ask_operator", arguments)
        assert envelope["ok"], envelope
        return str(envelope["data"]["question_id"])

    return ask


@pytest.fixture
def add(db: None, service: Outside) -> Call:
    """Add an address at the service, whose test was sent."""

    def added(**given: Any) -> dict[str, Any]:
        envelope = run(ADA, "notice_add", {"url": "ntfy://127.0.0.1/team", **given})
        assert envelope["ok"], envelope
        work()
        data: dict[str, Any] = envelope["data"]
        return data

    return added


def work() -> list[notices.NoticeResult]:
    """Send what is due; the outcomes."""
    return work_once(notices.NOTICES)


def refused(**given: Any) -> dict[str, Any]:
    envelope = run(ADA, "notice_add", {"url": "ntfys://ntfy.sh/team", **given})
    assert not envelope["ok"]
    return envelope["error"]  # type: ignore[no-any-return]


def later(**span: int) -> Any:
    return time_machine.travel(datetime.now(UTC) + timedelta(**span))


# What is sent


def test_a_new_address_gets_a_test(add: Call, service: Outside) -> None:
    row = add()
    assert "needs a person will come here" in service.got[-1].body
    assert run(ADA, "notice_list", {})["data"]["notices"][0]["last_sent_at"] is not None
    assert row["name"] == "ntfy"
    assert "127.0.0.1" not in json.dumps(run(ADA, "notice_list", {})["data"])  # an address may hold a password


def test_it_sends_what_needs_a_person_once_without_words(add: Call, ask: Ask, service: Outside) -> None:
    add()
    ask("Delete the secret branch?")
    assert work() == [notices.NoticeResult()]
    said = service.got[-1].body
    assert "Agents ask for permission" in said and "secret" not in said
    assert "https://nexus.example.org/admin/attention/" in said and "/answer/" not in said
    with later(minutes=1):
        assert work() == []
        ask("Another?")
        assert work() == [notices.NoticeResult()]
    assert len(service.got) == 3


def test_it_sends_words_where_they_are_allowed(add: Call, ask: Ask, service: Outside) -> None:
    add(with_text=True)
    ask("Delete the branch?", detail=f"It is merged. {NASTY}")
    work()
    assert "ana asks: Delete the branch?" in service.got[-1].body


def test_it_sends_the_chosen_kinds_and_the_project_s_alone(add: Call, ask: Ask, service: Outside, project: str) -> None:
    add(kinds=["questions"])
    add(project_root=project)
    ask("May I?")
    assert work() == []
    ask("Which one?", kind="question")
    assert work() == [notices.NoticeResult()]


def test_what_was_answered_in_quiet_hours_is_never_sent(add: Call, ask: Ask, service: Outside) -> None:
    with time_machine.travel(datetime(2026, 3, 1, 21, tzinfo=UTC), tick=False) as clock:
        add(quiet="22:00-07:00", timezone="UTC")
        clock.move_to(datetime(2026, 3, 1, 23, tzinfo=UTC))
        first, second = ask("May I?"), ask("And I?")
        assert work() == []
        run_control("pool_refuse", question_id=first)
        Question.objects.filter(pk=second).update(expires_at=datetime(2026, 3, 2, 9, tzinfo=UTC))
        clock.move_to(datetime(2026, 3, 2, 7, 1, tzinfo=UTC))
        assert work() == [notices.NoticeResult()]
    assert "1 thing needs a person" in service.got[-1].title


def run_control(name: str, **arguments: Any) -> None:
    envelope = dispatch.run(CONTROL, ADA, name, arguments)
    assert envelope["ok"], envelope


def test_a_failing_service_is_tried_again_later_and_needs_a_person(add: Call, ask: Ask, service: Outside) -> None:
    row = add()
    service.outcome = notices.NoticeResult("it answered 500")
    ask("May I?")
    assert work()[0].error and work() == []  # paused
    with later(minutes=3):
        assert work()[0].error
        page = Client(headers={"host": "127.0.0.1"}, REMOTE_ADDR="127.0.0.1").get("/admin/attention/").text
        assert "Notices to ntfy fail" in page
    service.outcome = notices.NoticeResult()
    assert run(ADA, "notice_test", {"notice_id": row["notice_id"]})["data"]["last_error"] is None
    assert NoticeAddress.objects.get().failures == 0


def test_an_address_can_be_changed(add: Call, service: Outside) -> None:
    row = add(kinds=["questions"], quiet="22:00-07:00")
    at = {"notice_id": row["notice_id"]}
    changed = run(ADA, "notice_update", {**at, "url": "mailtos://me:secret@example.org", "quiet": None})["data"]
    assert (changed["name"], changed["quiet"], changed["kinds"]) == ("mailtos", None, ["questions"])
    assert run(ADA, "notice_update", {**at, "quiet": "late"})["error"]["details"] == {"field": "quiet"}
    assert run(ADA, "notice_update", {"notice_id": "ntc_none"})["error"]["code"] == "NOT_FOUND"
    assert run(ADA, "notice_test", at)["ok"] and service.got[-1].address.url == "mailtos://me:secret@example.org"


def test_two_hubs_on_one_store_send_a_notice_once(add: Call, ask: Ask, service: Outside) -> None:
    add()
    ask("May I?")
    one, other = notices.Notices(), notices.Notices()
    assert one.queues() == other.queues() != []
    claims = [hub.claim(queue) for hub in (one, other) for queue in hub.queues()]
    assert sum(claim is not None for claim in claims) == 1


# The program that sends


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("allow_private", [True, False])
def test_a_mail_server_gets_it_where_a_private_address_is_allowed(db: None, ask: Ask, allow_private: bool) -> None:
    class Mails:
        got: list[str] = []

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            self.got.append(envelope.content.decode())
            return "250 OK"

    Mails.got = []
    port = free_port()
    server = Controller(Mails(), hostname="127.0.0.1", port=port)
    server.start()
    try:
        url = f"mailto://127.0.0.1:{port}?from=nexus@example.org&to=ada@example.org&mode=insecure"
        assert run(ADA, "notice_add", {"url": url, "allow_private": allow_private})["ok"]
        [sent] = work()
    finally:
        server.stop()
    if allow_private:
        assert sent == notices.NoticeResult() and "Subject: Nexus: a test" in Mails.got[0]
    else:
        assert Mails.got == [] and "private network" in str(NoticeAddress.objects.get().last_error)


def test_a_browser_of_an_earlier_version_is_told_to_be_removed(db: None) -> None:
    assert run(ADA, "notice_add", {"url": "ntfy://127.0.0.1/team"})["ok"]
    NoticeAddress.objects.update(url="", subscription={"endpoint": "https://push.example.org/1"})
    work()
    assert "remove this address" in str(NoticeAddress.objects.get().last_error)


def test_it_refuses_what_could_never_work(db: None) -> None:
    wrong: dict[str, list[Any]] = {
        "url": ["no address", "", "ntfy://" + "x" * 3000],
        "kinds": [["nothing"]],
        "quiet": ["22:00", "22:00-22:00"],
        "timezone": ["Mars/Olympus", "../../etc/passwd"],
    }
    for field, values in wrong.items():
        for value in values:
            error = refused(**{field: value})
            assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", field), value


def test_links_need_the_hub_s_address(db: None, settings: Any) -> None:
    settings.NEXUS = settings.NEXUS.replaced(public_url="")
    assert refused(with_answers=True)["details"]["field"] == "with_answers"


# The link


@pytest.fixture
def link(add: Call, ask: Ask, service: Outside) -> str:
    """The path of the link to a permission that ana asks for."""
    add(with_answers=True)
    ask("Run make?", detail="It builds the parser.")
    work()
    found = re.search(r"https://nexus\.example\.org(/answer/\S+)", service.got[-1].body)
    assert found
    return found[1]


@pytest.fixture
def phone() -> Client:
    """A browser without a login, elsewhere; it sends no token against forged requests."""
    return Client(enforce_csrf_checks=True, **PHONE)  # type: ignore[arg-type]


def status() -> str:
    return Question.objects.get().status


def test_a_link_shows_the_question_and_answers_it_once(link: str, phone: Client) -> None:
    page = phone.get(link)
    assert "Run make?" in page.text and "It builds the parser." in page.text and "pool_allow" in page.text
    assert "pool_allow_always" not in page.text
    assert page["Referrer-Policy"] == "no-referrer" and "no-store" in page["Cache-Control"]
    assert status() == "asked"
    assert phone.post(link, {"do": "pool_allow"}).status_code == 303
    question = Question.objects.get()
    assert (question.status, question.always, question.answered_by) == ("allowed", False, "ada")
    assert "This question is allowed by ada." in phone.get(link).text
    assert "This question is allowed by ada." in phone.post(link, {"do": "pool_refuse"}).text
    assert status() == "allowed"


def test_looking_at_it_changes_nothing_nor_does_an_act_that_it_does_not_show(link: str, phone: Client) -> None:
    for look in (phone.get, phone.head, phone.options):
        look(f"{link}?do=pool_allow", headers={"Sec-Purpose": "prefetch"})
    for operation in ("", "pool_allow_always", "agent_delete", "pool_dismiss_run", NASTY):
        assert phone.post(link, {"do": operation}).status_code == 400
    assert status() == "asked"


def test_an_answer_in_words_needs_words(link: str, phone: Client) -> None:
    assert "Write your answer first." in phone.post(link, {"do": "pool_answer", "words": " "}).text
    phone.post(link, {"do": "pool_answer", "words": "Use ninja."})
    assert Question.objects.get().words == "Use ninja."


def test_an_expired_question_is_not_answered(link: str, phone: Client) -> None:
    with later(hours=1):
        assert "This question is expired." in phone.post(link, {"do": "pool_allow"}).text
    with later(days=8):
        assert (phone.post(link, {"do": "pool_allow"}).status_code, phone.get(link).status_code) == (410, 410)
    assert status() == "asked"


@pytest.mark.parametrize("end", ["the address is removed", "the account is closed"])
def test_a_link_whose_reader_left_answers_nothing(link: str, phone: Client, end: str) -> None:
    if end == "the address is removed":
        run(ADA, "notice_remove", {"notice_id": NoticeAddress.objects.get().pk})
    else:
        User.objects.create_user("ada", is_staff=True, is_active=False)
    assert phone.post(link, {"do": "pool_allow"}).status_code == 410
    assert status() == "asked"


@pytest.mark.parametrize(
    "change", [lambda link: link[:-2], lambda link: f"/answer/{'x' * 3000}", lambda link: "/answer/é"]
)
def test_foreign_links_keep_no_right_one_of_the_same_address_out(
    link: str, phone: Client, change: Callable[[str], str]
) -> None:
    wrong = change(link)
    for _ in range(20):
        page = phone.get(wrong)
        assert page.status_code == 404 and "no link of this hub" in page.text
    assert phone.get(link).status_code == 200
    assert phone.post(link, {"do": "pool_allow"}).status_code == 303


# The page


LIST = "/admin/hooks/noticeaddress/"


def test_the_list_adds_tests_and_removes_an_address(db: None, browser: Client, service: Outside) -> None:
    form = {"url": "ntfy://127.0.0.1/team", "kinds": ["questions", "disk"], "quiet": "22:00-07:00"}
    assert browser.post(f"{LIST}add/", form).headers["Location"] == LIST
    row = NoticeAddress.objects.get()
    page = browser.get(LIST).text
    assert "questions, disk" in page and "22:00–07:00" in page and "127.0.0.1" not in page
    assert "127.0.0.1" not in browser.get(f"{LIST}{row.pk}/change/").text
    work()
    tested = {"do": f"notice_test {row.pk}", "next": LIST}
    assert "was sent a test, and took it" in browser.post("/admin/act/", tested, follow=True).text
    service.outcome = notices.NoticeResult("it answered 404")
    page = browser.post("/admin/act/", tested, follow=True).text
    assert "Nothing arrives at ntfy: it answered 404." in page and NoticeAddress.objects.get().failures == 1
    shown = browser.get("/admin/act/", {"do": f"notice_update {row.pk}"}).text
    assert 'value="22:00-07:00"' in shown and "127.0.0.1" not in shown
    given = {"do": f"notice_update {row.pk}", "asked": "1", "kinds": ["disk"], "quiet": "", "with_text": "on"}
    browser.post("/admin/act/", given)
    row.refresh_from_db()
    assert (row.kinds, row.quiet_from, row.with_text, row.url) == (["disk"], None, True, "ntfy://127.0.0.1/team")
    browser.post("/admin/act/", {"do": f"notice_remove {row.pk}", "asked": "1"})
    assert not NoticeAddress.objects.exists()


def test_add_keeps_what_was_refused(db: None, browser: Client) -> None:
    page = browser.post(f"{LIST}add/", {"url": "ntfys://ntfy.sh/t", "quiet": "late"}).text
    assert 'value="ntfys://ntfy.sh/t"' in page and "two times such as 22:00-07:00" in page


def test_the_hub_s_address_is_a_text_and_what_is_none_is_refused() -> None:
    for text in ("", "https://nexus.example.org", "http://127.0.0.1:8470/nexus"):
        assert parse("public_url", text, "flag") == text
    for text in ("nexus.example.org", "file:///etc", "https://", "https://a b", "https://me:pw@b.org"):
        with pytest.raises(NexusError):
            parse("public_url", text, "flag")
