"""Where agents run programs, being on the hub's machine makes nobody its operator: the token or a login does."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.test import Client

from nexus.client.tokens import generate_api_key
from nexus.control import selectors
from nexus.control.agents import turns
from nexus.control.agents.turns import Ended
from nexus.control.models import TurnStatus
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.core.access import AccessDenied, ConnectionInfo, identify
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from tests.control.pool import create, send

HERE = {"host": "localhost:8420"}
RUNNERS = {
    "acp": '[runners.coder]\nkind = "acp"\ncommand = ["coder"]\n',
    "model": '[runners.small]\nkind = "model"\nmodel = "openai:small"\n',
    "nonsense": "nonsense",
}


@pytest.fixture
def token(tmp_path: Path, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> str:
    """The token of a hub whose runners may start programs."""
    (tmp_path / "runners.toml").write_text(RUNNERS["acp"])
    configure(control=True, home=tmp_path)
    monkeypatch.setattr(ENDPOINT, "token", generate_api_key())
    assert ENDPOINT.token
    return ENDPOINT.token


def _who(**headers: str) -> Caller:
    given = {name.replace("_", "-"): value for name, value in {**HERE, **headers}.items()}
    return identify(ConnectionInfo("127.0.0.1", tuple(given.items()), ""), transport="rest")


@pytest.mark.parametrize("runners", RUNNERS)
def test_it_takes_nobody_for_the_operator_for_being_local(token: str, tmp_path: Path, runners: str) -> None:
    (tmp_path / "runners.toml").write_text(RUNNERS[runners])
    with pytest.raises(AccessDenied) as refused:
        _who()
    assert refused.value.status == 401 and "hub's token" in refused.value.message


def test_it_takes_the_holder_of_the_token_for_the_operator(token: str) -> None:
    assert _who(authorization=f"Bearer {token}") == _who(x_api_key=token)
    assert _who(x_api_key=token) == Caller("rest", operator="local", connection="operator:local")
    for wrong in (token[:-1] + "!", generate_api_key(), "nxk_", "é", "None"):
        with pytest.raises(AccessDenied):
            _who(x_api_key=wrong)


def test_it_takes_the_token_from_no_page_of_another_site(token: str) -> None:
    with pytest.raises(AccessDenied) as refused:
        _who(x_api_key=token, origin="http://evil.example")
    assert refused.value.status == 403


def test_it_goes_on_to_trust_who_is_local_where_no_runner_starts_programs(
    db: None, tmp_path: Path, configure: Callable[..., None]
) -> None:
    configure(control=True, home=tmp_path)
    assert _who().operator == "local"
    (tmp_path / "runners.toml").write_text(RUNNERS["acp"])
    configure(control=False, home=tmp_path)
    assert _who().operator == "local"


@pytest.mark.parametrize("after", ["", '[runners.coder]\nkind = "rehearsal"\n', None])
def test_a_runner_that_is_taken_away_while_its_program_runs_makes_nobody_the_operator_before_that_has_ended(
    db: None, tmp_path: Path, configure: Callable[..., None], after: str | None
) -> None:
    configure(control=True, home=tmp_path)
    assert _who().operator == "local"
    (tmp_path / "runners.toml").write_text(RUNNERS["acp"])
    create("ann", runner="coder")
    turn = turns.claim(send("ann").pk)
    assert turn
    if after is None:
        (tmp_path / "runners.toml").unlink()
    else:
        (tmp_path / "runners.toml").write_text(after)
    with pytest.raises(AccessDenied):
        _who()
    turns.settle_turn(turn, Ended(TurnStatus.DONE, "done"))
    assert _who().operator == "local"


@pytest.mark.parametrize("are_seconds_whole", [False, True])
def test_a_turn_that_begins_just_behind_a_change_takes_no_trust_away_where_the_files_time_is_exact(
    db: None, tmp_path: Path, configure: Callable[..., None], monkeypatch: pytest.MonkeyPatch, are_seconds_whole: bool
) -> None:
    configure(control=True, home=tmp_path)
    changed = now().replace(microsecond=0 if are_seconds_whole else 500_000)
    monkeypatch.setattr(selectors, "changed_at", lambda: changed)
    create("ann")
    with time_machine.travel(changed + timedelta(seconds=0.1), tick=False):
        assert turns.claim(send("ann").pk)
    if are_seconds_whole:
        with pytest.raises(AccessDenied):
            _who()
    else:
        assert _who().operator == "local"


def test_the_dashboard_asks_for_a_login_and_takes_the_token_for_one(
    committed: None, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = Client(headers=HERE)
    assert browser.get("/admin/").headers["Location"].startswith("/admin/login/")
    page = browser.get("/admin/login/").content.decode()
    assert "rpc.token" in page
    for name, password in (("local", ""), ("local", generate_api_key()), ("ada", token)):
        answer = browser.post("/admin/login/", {"username": name, "password": password})
        assert answer.status_code == 200, "it shows the form again"
    answer = browser.post("/admin/login/?next=/admin/control/poolagent/", {"username": "local", "password": token})
    assert answer.headers["Location"] == "/admin/control/poolagent/"
    assert browser.get("/admin/control/poolagent/").status_code == 200
    browser.post("/admin/logout/")
    assert browser.get("/admin/control/poolagent/").status_code == 302
    browser.post("/admin/login/", {"username": "local", "password": token})
    assert browser.get("/admin/control/poolagent/").status_code == 200
    monkeypatch.setattr(ENDPOINT, "token", generate_api_key())
    assert browser.get("/admin/control/poolagent/").status_code == 302, "the token of another run"


def test_the_login_page_tells_of_no_token_where_there_is_none(db: None, settings: Any) -> None:
    settings.NEXUS_TRUSTS_LOCAL = False
    page = Client(headers=HERE).get("/admin/login/").content.decode()
    assert "password" in page and "rpc.token" not in page
