"""An agent that is a process of its own, in the pool of a real hub: what it is refused, and what a person allows it."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from nexus.control.runners import sandbox
from tests.acceptance.hub import ROOT, START_SECONDS
from tests.acceptance.pool import Pool, until
from tests.conftest import Furnish

AGENT = ROOT / "tests" / "control" / "acp_agent.py"
RUNNERS = """
[runners.coder]
kind = "acp"
command = [{python}, {agent}]
read_paths = [{root}]
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Pool]:
    """A hub whose agents are processes, which have its network."""
    if not sandbox.state().works:
        pytest.skip(f"no sandbox on this machine: {sandbox.state().why}")
    home = furnish(tmp_path_factory.mktemp("pool") / "home")
    words = {"python": sys.executable, "agent": str(AGENT), "root": str(ROOT)}
    runners = RUNNERS.format(**{name: json.dumps(word) for name, word in words.items()})
    started = Pool(home, runners=runners)
    yield started
    started.close()


@pytest.fixture
def place(pool: Pool, tmp_path: Path) -> Iterator[Path]:
    """The directory of an agent, `ann`, which writes in `out`."""
    (tmp_path / "place" / "out").mkdir(parents=True)
    given: dict[str, Any] = {"cwd": str(tmp_path / "place"), "allowed_write_paths": ["out"]}
    pool.result("create_agent", agent_id="ann", model="coder", **given)
    yield tmp_path / "place"
    pool.result("destroy_agent", agent_id="ann")
    until(lambda: not descendants(pool))


def descendants(pool: Pool) -> list[psutil.Process]:
    """What the pool's worker started, and what that did, daemons too."""
    found: list[psutil.Process] = pool.worker().children(recursive=True)
    return found


def said(pool: Pool, prompt: str, agent_id: str = "ann") -> str:
    """What an agent answers."""
    answer = pool.send(agent_id, prompt)
    assert "result" in answer, answer
    content: str = answer["result"]["content"]
    return content


def newest(pool: Pool, type: str) -> dict[str, Any]:
    """What the newest event of a type tells."""
    url, headers = f"{pool.hub.url}/api/v1/events?type={type}", {"authorization": f"Bearer {pool.token}"}
    rows = httpx.get(url, headers=headers, timeout=START_SECONDS).json()["data"]["results"]
    told: dict[str, Any] = rows[0]["payload"]
    return told


class Person:
    """Somebody at a browser, who can read the hub's home."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.browser = httpx.Client(base_url=pool.hub.url, follow_redirects=True, timeout=START_SECONDS)

    def sends(self, page: httpx.Response, to: str, **form: str) -> httpx.Response:
        """Send a form of a page."""
        secret = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', page.text)
        assert secret, page.text
        return self.browser.post(to, data={"csrfmiddlewaretoken": secret[1], **form})

    def logs_in(self) -> None:
        """With the hub's token; whoever came for a page is shown the login first."""
        page = self.browser.get("/admin/control/question/")
        assert page.url.path == "/admin/login/" and "rpc-PORT.token" in page.text
        assert self.sends(page, str(page.url), username="local", password="nxk_wrong").url.path == "/admin/login/"
        page = self.sends(page, str(page.url), username="local", password=self.pool.token)
        assert page.url.path == "/admin/control/question/"

    def allows(self) -> str:
        """What is asked, once something is; and press Allow."""
        found: list[str] = []

        def look() -> bool:
            found[:] = re.findall(r"/admin/questions/(qst_\w+)/", self.browser.get("/admin/control/question/").text)
            return bool(found)

        until(look)
        page = self.browser.get(f"/admin/questions/{found[0]}/")
        answered = self.sends(page, "/admin/act/", do=f"pool_allow {found[0]}", next="/admin/control/question/")
        assert answered.status_code == 200
        return page.text


def test_a_write_is_refused_until_a_person_allows_it_on_the_dashboard(pool: Pool, place: Path) -> None:
    file = place / "notes.txt"
    assert '"rule": "write_paths"' in said(pool, f"write {file} text")
    assert not said(pool, f"shell echo text > {file}").startswith("0 ") and not file.exists()
    person = Person(pool)
    person.logs_in()
    with ThreadPoolExecutor(1) as sender:
        answer = sender.submit(said, pool, f"edit {file} text")
        shown = person.allows()
        assert answer.result(START_SECONDS) == "yes written"
    assert str(file) in shown and file.read_text() == "text"
    assert '"rule": "write_paths"' in said(pool, f"write {file} more"), "it was allowed in that turn"
    told = newest(pool, "question.answered")
    assert (told["operator"], told["status"], told["scope"]) == ("local", "allowed", "once")


ALLOW, ISSUE = "/api/v1/control/operations/pool_allow", "/api/v1/operations/agent_key_issue"


OPERATORS_OWN = [  # what would make an agent more than it is
    *(f"POST:{ALLOW}:{who}:question_id" for who in ("nobody", "key")),
    *(f"POST:{ISSUE}:{who}:agent_id" for who in ("nobody", "key")),
    *(f"GET:{path}:nobody:" for path in ("/admin/control/question/", "/metrics", "/api/v1/events", "/api/v1/stream")),
    *(f"POST:{path}:nobody:x" for path in ("/admin/act/", "/rpc", "/mcp")),
    *("GET:/admin/control/question/:key:", "GET:/agent/ann/stream:nobody:"),
]


def test_an_agent_with_the_network_is_no_operator_of_its_hub(pool: Pool, place: Path) -> None:
    statuses = dict(zip(OPERATORS_OWN, json.loads(said(pool, f"reach {' '.join(OPERATORS_OWN)}")), strict=True))
    assert {asked: status for asked, status in statuses.items() if status not in (302, 401, 403)} == {}
    assert "nxk_" not in said(pool, f"shell cat {pool.token_file} {pool.hub.home}/* 2>&1")


def test_what_it_leaves_behind_ends_with_its_turn(pool: Pool, place: Path) -> None:
    mark = f"left-by-{os.getpid()}"  # the same test may be played by another run beside
    assert said(pool, f"daemon {mark}") == "left one behind"
    until(lambda: not descendants(pool))
    assert not [each.pid for each in psutil.process_iter(["cmdline"]) if mark in str(each.info["cmdline"])]
