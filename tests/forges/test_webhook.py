"""Calls of a forge's webhook: who may call, and what a call does, once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from coordination.toolset import run
from handoffs.models import Handoff
from nexus.core.background_work import work_once
from nexus.forges.models import Forge, ForgeIssue
from nexus.forges.polling import ROUNDS
from tests.conftest import OPERATOR
from tests.forges.github_server import GitHub, serve

Send = Callable[..., int]
LATER = datetime(2999, 1, 1, tzinfo=UTC)


@pytest.fixture
def send(forge: Forge) -> Send:
    """Call the webhook as GitHub does, from anywhere; return the answer's status."""
    client = Client()

    def sent(delivery: str = "d-1", event: str = "issues", secret: str = "", to: Forge = forge, **headers: Any) -> int:
        body = json.dumps({"action": "labeled", "issue": {"number": 1}}).encode()
        signature = "sha256=" + hmac.new((secret or to.secret).encode(), body, hashlib.sha256).hexdigest()
        given = {"X-Hub-Signature-256": signature, "X-GitHub-Event": event, "X-GitHub-Delivery": delivery, **headers}
        path = f"/api/v1/forges/{to.pk}/webhook"
        return client.post(
            path, body, content_type="application/json", headers=given, REMOTE_ADDR="203.0.113.9"
        ).status_code

    return sent


def test_a_call_makes_the_hub_look_at_once(github: GitHub, forge: Forge, send: Send) -> None:
    Forge.objects.update(poll_at=datetime.now(UTC) + timedelta(hours=1))
    github.add_issue(1, "Cart")
    assert work_once(ROUNDS) == []
    assert send() == 202
    work_once(ROUNDS)
    assert Handoff.objects.count() == 1


def test_the_same_call_again_is_one_event(github: GitHub, forge: Forge, send: Send) -> None:
    github.add_issue(1, "Cart")
    assert [send(), send(), send("d-2")] == [202, 202, 202]
    work_once(ROUNDS)
    assert send() == 202
    work_once(ROUNDS)
    assert Handoff.objects.count() == 1


def test_calls_of_two_forges_that_come_out_of_order_end_in_what_is_true(
    github: GitHub, forge: Forge, send: Send, project: str
) -> None:
    with serve() as elsewhere:
        given = {"kind": "github", "repository": "acme/shop", "project_root": project, "label": "nexus"}
        assert run(OPERATOR, "forge_connect", {**given, "url": elsewhere.url, "token": elsewhere.token})["ok"]
        other = Forge.objects.exclude(pk=forge.pk).get()
        for server in (github, elsewhere):
            server.add_issue(1, "Cart")
        work_once(ROUNDS)
        elsewhere.change_issue(1, state="closed")
        github.change_issue(1, title="Basket")
        # That of the close comes first, and that of the label last; both forges number their calls alike.
        assert [send("d-2", to=other), send("d-2"), send("d-1"), send("d-1", to=other)] == [202] * 4
        work_once(ROUNDS)
        work_once(ROUNDS)
    statuses = dict(ForgeIssue.objects.values_list("forge_id", "handoff__status"))
    assert statuses == {forge.pk: "OPEN", other.pk: "CANCELLED"}


def test_a_wrong_signature_changes_nothing(forge: Forge, send: Send) -> None:
    Forge.objects.update(poll_at=LATER)
    assert send(secret="wrong") == 401
    assert send(**{"X-Hub-Signature-256": "sha256="}) == 401
    assert send(**{"X-Hub-Signature-256": "sha256=\u00e9"}) == 401
    assert Forge.objects.get().poll_at == LATER
    assert Client().post("/api/v1/forges/frg_none/webhook", b"{}", content_type="application/json").status_code == 401
    assert Client().get(f"/api/v1/forges/{forge.pk}/webhook").status_code == 405


def test_an_unknown_event_is_ignored(forge: Forge, send: Send) -> None:
    Forge.objects.update(poll_at=LATER)
    assert send(event="star") == 202 and send(event="") == 202
    assert Forge.objects.get().poll_at == LATER


def test_a_call_during_a_look_makes_another_one_and_not_two_at_once(
    github: GitHub, forge: Forge, send: Send, look: Callable[[], list[Any]]
) -> None:
    github.add_issue(1, "Cart")
    look()
    ForgeIssue.objects.update(due_at=forge.created_at, comment="")
    step = ROUNDS.claim(forge.pk)
    assert step is not None and step.issue is not None
    found = ROUNDS.act(step)
    assert send() == 202
    Forge.objects.update(poll_at=datetime.now(UTC) + timedelta(hours=1))
    assert ROUNDS.claim(forge.pk) is None, "another hub waits for the end of this look"
    ROUNDS.settle(step, found)
    assert ROUNDS.claim(forge.pk) is not None, "what the call was about may be newer than what was read"


def test_a_pause_is_kept_whatever_calls_come(github: GitHub, forge: Forge, send: Send) -> None:
    github.answers = [(403, {"retry-after": "600"})]
    work_once(ROUNDS)
    calls = len(github.calls)
    for number in range(5):
        assert send(f"d-{number}") == 202
    assert work_once(ROUNDS) == [] and len(github.calls) == calls


def test_gitlab_is_known_by_its_token(forge: Forge) -> None:
    Forge.objects.update(kind="gitlab", poll_at=LATER)
    path = f"/api/v1/forges/{forge.pk}/webhook"
    headers = {"X-Gitlab-Token": forge.secret, "X-Gitlab-Event": "Issue Hook"}
    assert Client().post(path, b"{}", content_type="application/json", headers=headers).status_code == 202
    assert Forge.objects.get().poll_at < LATER
    headers["X-Gitlab-Token"] = "wrong"
    assert Client().post(path, b"{}", content_type="application/json", headers=headers).status_code == 401
