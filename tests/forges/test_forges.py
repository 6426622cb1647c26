"""Connected repositories: who may connect them, and what is kept of their tokens."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from coordination.models import Event
from coordination.toolset import run
from nexus.core.operations.caller import Caller
from nexus.forges.models import Forge, ForgeIssue
from nexus.forges.polling import ROUNDS
from tests.conftest import OPERATOR
from tests.forges.github_server import GitHub

Look = Callable[[], list[Any]]
TOKEN = "ghp_a1b2c3d4e5f6"


def connect(project: str, **more: Any) -> dict[str, Any]:
    given = {"kind": "github", "repository": "acme/shop", "project_root": project, "token": TOKEN, "label": "nexus"}
    return run(OPERATOR, "forge_connect", {**given, **more})


def test_it_shows_a_token_nowhere(project: str, db: None, browser: Client) -> None:
    answer = connect(project)
    assert answer["ok"] and TOKEN not in str(answer)
    listed = run(OPERATOR, "forge_list", {})
    page = browser.get("/admin/forges/forge/").content.decode()
    events = str(list(Event.objects.values_list("payload", flat=True)))
    secret = answer["data"]["webhook_secret"]
    for text in (str(listed), page, events):
        assert "acme/shop" in text and TOKEN not in text and secret not in text


def test_an_agent_may_not_connect_or_list(project: str, db: None) -> None:
    given = {"kind": "github", "repository": "acme/shop", "project_root": project, "token": TOKEN}
    agent = Caller("test", agent_id="builder")
    for name, arguments in (("forge_connect", given), ("forge_list", {}), ("forge_disconnect", {"forge_id": "frg_1"})):
        assert run(agent, name, arguments)["error"]["code"] == "NOT_OWNER"
    assert not Forge.objects.exists()


def test_it_refuses_what_cannot_be_called(project: str, db: None) -> None:
    wrong: list[dict[str, Any]] = [
        *({"repository": name} for name in ("shop", "acme/../x", "acme/shop/x", "acme/sh op")),
        *({"token": "two words"}, {"token": "line\nbreak"}),
        *({"url": "ftp://example.com"}, {"url": "https://user:word@example.com"}),
        *({"kind": "gitea"}, {"target": {"strategy": "nobody"}}),
    ]
    for each in wrong:
        error = connect(project, **each)["error"]
        assert error["code"] == "VALIDATION_ERROR" and str(each.get("token")) not in str(error), each
    assert not Forge.objects.exists()


def test_connecting_again_replaces_the_token_and_keeps_the_webhook(project: str, db: None) -> None:
    first = connect(project)["data"]
    again = connect(project, token="ghp_new", label="agents")["data"]
    row = Forge.objects.get()
    assert (row.token, row.label) == ("ghp_new", "agents")
    assert (again["forge_id"], again["webhook_secret"]) == (first["forge_id"], first["webhook_secret"])


def test_another_label_takes_what_has_it_already(github: GitHub, forge: Forge, look: Look, project: str) -> None:
    github.add_issue(1, "Cart", labels=("agents",))
    github.add_issue(2, "Till")
    look()
    again = {"kind": "github", "repository": "acme/shop", "project_root": project, "token": github.token}
    step = ROUNDS.claim(forge.pk) if Forge.objects.update(poll_at=forge.created_at) else None
    assert step is not None
    assert run(OPERATOR, "forge_connect", {**again, "url": github.url, "label": "agents"})["ok"]
    ROUNDS.settle(step, ROUNDS.act(step))  # a look that began before
    look()
    assert set(ForgeIssue.objects.values_list("number", flat=True)) == {1, 2}


def test_another_project_cannot_take_a_repository_over_and_disconnecting_forgets_the_token(
    project: str, tmp_path: Path, db: None
) -> None:
    forge_id = connect(project)["data"]["forge_id"]
    assert connect(str(tmp_path))["error"]["code"] == "VALIDATION_ERROR"
    assert run(OPERATOR, "forge_disconnect", {"forge_id": forge_id})["ok"]
    assert not Forge.objects.exists()
    assert run(OPERATOR, "forge_disconnect", {"forge_id": forge_id})["error"]["code"] == "NOT_FOUND"


def test_the_command_takes_the_token_from_the_environment(
    project: str, db: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    out = io.StringIO()
    with pytest.raises(SystemExit, match="0"):
        call_command("forge", "connect", "github", "acme/shop", "--project", project, stdout=out)
    assert Forge.objects.get().token == TOKEN and TOKEN not in out.getvalue()


def test_the_list_connects_and_disconnects(project: str, db: None, browser: Client) -> None:
    run(OPERATOR, "forge_connect", {"kind": "gitlab", "repository": "a/b", "project_root": project, "token": "t"})
    form = {"kind": "github", "repository": "acme/shop", "project_root": project, "token": TOKEN, "label": "nexus"}
    shown = browser.post("/admin/forges/forge/add/", form).content.decode()
    row = Forge.objects.get(kind="github")
    assert row.secret in shown and TOKEN not in shown
    browser.post("/admin/act/", {"do": f"forge_disconnect {row.pk}", "asked": "1"})
    assert not Forge.objects.filter(kind="github").exists()
