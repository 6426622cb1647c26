"""Failed logins: delayed by address and by name, logged, counted, and never for ever."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.hashers import get_hasher
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from nexus.client.tokens import generate_api_key
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.core.instance import login_code
from nexus.core.operations.caller import LOCAL_OPERATOR
from nexus.dashboard import site
from nexus.web.login import FREE, KEPT, LONGEST_SECONDS, Throttle, network_of
from nexus_site.serving import metrics

OPERATOR, STRANGER = "198.51.100.7", "203.0.113.9"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(db: None, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Clock:
    settings.NEXUS_TRUSTS_LOCAL = False
    User.objects.create_superuser("ada", password="correct horse")
    clock = Clock()
    monkeypatch.setattr(site, "THROTTLE", Throttle(clock))
    return clock


def log_in(password: str, name: str = "ada", peer: str = STRANGER) -> HttpResponse:
    client = Client(headers={"host": "127.0.0.1:8420"}, REMOTE_ADDR=peer)
    answer: Any = client.post("/admin/login/", {"username": name, "password": password, "next": "/admin/"})
    return HttpResponse(answer.content, status=answer.status_code, headers=dict(answer.headers))


def test_wrong_passwords_are_delayed_and_the_page_says_for_how_long(clock: Clock) -> None:
    for _ in range(FREE):
        assert log_in("wrong").status_code == 200

    refused = log_in("correct horse")

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert "Wait 1 second" in refused.content.decode()
    clock.now += 1
    assert log_in("correct horse").status_code == 302
    assert log_in("wrong").status_code == 200  # a login forgets what was before


def test_no_password_is_looked_at_while_one_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(FREE):
        log_in("wrong")
    hashed: list[str] = []
    monkeypatch.setattr(type(get_hasher()), "encode", lambda self, password, *more: hashed.append(password))
    assert {log_in("wrong").status_code for _ in range(5)} == {429}
    assert hashed == []


def test_an_unknown_name_is_hashed_as_a_known_one_is(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[str] = []
    hasher = type(get_hasher())
    encode = hasher.encode

    def counted(self: Any, password: str, *more: Any) -> str:
        hashed.append(password)
        return str(encode(self, password, *more))

    monkeypatch.setattr(hasher, "encode", counted)
    counts = []
    for name in ("ada", "nobody", "local"):
        hashed.clear()
        log_in("wrong", name, f"{STRANGER[:-1]}{len(name)}")
        counts.append(len(hashed))
    assert counts == [counts[0]] * 3 and counts[0], counts


def test_strangers_elsewhere_do_not_keep_an_operator_out(clock: Clock) -> None:
    for number in range(2 * FREE):
        log_in("wrong", peer=f"203.0.113.{number}")
    assert log_in("correct horse", peer=OPERATOR).status_code == 302


def test_the_token_of_the_run_never_waits(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    token = generate_api_key()
    monkeypatch.setattr(ENDPOINT, "token", token)
    for _ in range(FREE):
        log_in("wrong", LOCAL_OPERATOR)
    assert log_in("wrong", LOCAL_OPERATOR).status_code == 429
    assert log_in(token, LOCAL_OPERATOR).status_code == 302


def test_an_address_logs_in_once_and_not_for_ever(clock: Clock, configure: Callable[..., None], tmp_path: Path) -> None:
    configure(home=tmp_path)
    for code, page in ((login_code(tmp_path), "/admin/"), ("guessed", "/admin/login/"), ("x" * 3000, "/admin/login/")):
        for landed in (page, "/admin/login/"):
            client = Client(headers={"host": "127.0.0.1:8420"})
            assert client.head(f"/login/{code}").status_code == 302  # a preview does not use it up
            answer = client.get(f"/login/{code}", follow=True)
            assert answer.request["PATH_INFO"] == landed
    late = login_code(tmp_path)
    for file in (tmp_path / "logins").iterdir():
        os.utime(file, (file.stat().st_mtime - 1000,) * 2)
    assert Client().get(f"/login/{late}", follow=True).request["PATH_INFO"] == "/admin/login/"
    login_code(tmp_path)
    assert len(list((tmp_path / "logins").iterdir())) == 1


def test_a_name_is_tried_no_faster_from_several_addresses_than_from_one(clock: Clock) -> None:
    peers = [f"203.0.113.{number}" for number in range(FREE)]
    for peer in peers:
        log_in("wrong", peer=peer)
    assert {log_in("wrong", peer=peer).status_code for peer in peers} == {429}


def test_a_failed_login_is_logged_without_its_password_and_counted(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "nexus.dashboard.site"):
        log_in("hunter2", "ada\r\nforged " + "x" * 100)
        for _ in range(FREE):
            log_in("hunter2")
    assert len(caplog.messages) == FREE
    assert caplog.messages[0].startswith(f"A login from {STRANGER} as 'ada\\r\\nforged x")
    assert all("\n" not in line and "hunter2" not in line and len(line) < 200 for line in caplog.messages)
    told = metrics.exposition().decode()
    assert f'nexus_logins_total{{outcome="failed"}} {FREE}.0' in told
    assert 'nexus_logins_total{outcome="refused"} 1.0' in told


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.floats(0, 60)), max_size=60))
def test_nobody_waits_longer_than_the_longest_delay(tries: list[tuple[int, int, float]]) -> None:
    clock = Clock()
    throttle = Throttle(clock)
    for peer, name, pause in tries:
        clock.now += pause
        seconds = throttle.wait(f"10.0.0.{peer}", str(name))
        assert 0 <= seconds <= LONGEST_SECONDS
        if not seconds:
            throttle.add_failure(f"10.0.0.{peer}", str(name))


def test_it_keeps_no_more_than_it_must() -> None:
    throttle = Throttle(Clock())
    for number in range(KEPT + 10):
        throttle.add_failure(f"2001:db8:{number:x}::1", f"name {number}")
    assert len(throttle._peers._counts) == len(throttle._names._counts) == KEPT
    assert network_of("2001:db8:1:2:3::4") == network_of("2001:db8:1:2::") != network_of("2001:db8:1:3::")
    assert network_of("::ffff:10.0.0.1") != network_of("::ffff:10.0.0.2")
