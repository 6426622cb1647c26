"""A pool survives: the worker killed, the hub killed, both ended in order; and nothing stays behind."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.hub import START_SECONDS, csrf_token
from tests.acceptance.pool import Pool, until
from tests.postgres import Cluster, database_of

Start = Callable[..., Pool]


@pytest.fixture
def pool(home: Path) -> Iterator[Start]:
    """Starts hubs with a pool over one home. In the end nothing of them is left."""
    pools: list[Pool] = []
    home.mkdir(mode=0o700, exist_ok=True)

    def begin(*flags: str, **more: Any) -> Pool:
        pools.append(Pool(home, *flags, **more))
        return pools[-1]

    yield begin
    for each in pools:
        each.close()
    until(lambda: not any(each.left() for each in pools))


def test_a_killed_worker_is_told_and_replaced_and_what_waited_is_taken(pool: Start) -> None:
    hub = pool("--pool-turns", "1")
    for name in ("parent", ".temp"):
        hub.create(name, preset="trusted")
    hub.create("child", parent_agent_id="parent")
    stalled = hub.threads.submit(hub.send, "child", "stall")
    hub.begun("child", "stall")
    waiting = hub.threads.submit(hub.send, "parent", "hello")
    hub.worker().kill()
    error = stalled.result()["error"]
    assert error["data"]["code"] == "TURN_INTERRUPTED", error
    assert "went on with hello" in waiting.result()["result"]["content"]
    assert "went on with again" in hub.send("child", "again")["result"]["content"]
    agents = hub.agents()
    assert agents.keys() == {"parent", "child", ".temp"}, "a worker's death ends no agent"
    assert agents["child"]["parent_agent_id"] == "parent"
    assert [row["content"] for row in hub.messages("parent") if row["role"] == "user"] == ["hello"], "taken once"
    stalled = hub.threads.submit(hub.send, "parent", "stall")
    hub.begun("parent", "stall")
    hub.kill_keeper()
    assert stalled.result()["error"]["data"]["code"] == "TURN_INTERRUPTED", "a worker that is lost is replaced, too"
    assert "went on with again" in hub.send("parent", "again")["result"]["content"]


def test_a_killed_hub_takes_its_worker_along_and_the_next_one_has_its_agents(pool: Start) -> None:
    hub = pool()
    hub.create("parent", preset="trusted")
    hub.create("child", parent_agent_id="parent", disable_tools=["grep"])
    hub.create(".temp")
    done = hub.send("parent", "hello", request_id="first")["result"]
    hub.threads.submit(hub.send, "child", "stall", request_id="second")
    hub.begun("child", "stall")
    before = hub.agents()
    hub.kill()
    until(lambda: not hub.left())
    again = pool()
    assert again.token == hub.token
    assert again.send("parent", "hello", request_id="first")["result"] == done, "not run twice"
    error = again.send("child", "stall", request_id="second")["error"]
    assert error["data"]["code"] == "TURN_INTERRUPTED", error
    until(lambda: ".temp" not in again.agents())
    kept = ("parent_agent_id", "cwd", "permission_level", "write_paths", "created_at")
    for name in ("parent", "child"):
        assert {key: again.agents()[name][key] for key in kept} == {key: before[name][key] for key in kept}


def test_a_login_by_the_token_outlives_a_restart(pool: Start) -> None:
    runners = '[runners.acp]\nkind = "acp"\ncommand = ["none"]\n'  # so that being on this machine is not enough
    hub = pool(runners=runners)
    with httpx.Client(timeout=START_SECONDS) as browser:

        def statuses() -> list[int]:
            """Of a page, of the API, and of a stream, as the browser's cookie opens them."""
            url = hub.hub.url
            with browser.stream("GET", f"{url}/api/v1/stream") as stream:
                pages = (browser.get(f"{url}{path}") for path in ("/admin/control/poolagent/", "/api/v1/agents"))
                return [*(page.status_code for page in pages), stream.status_code]

        page = browser.get(f"{hub.hub.url}/admin/login/")
        form = {"username": "local", "password": hub.token, "csrfmiddlewaretoken": csrf_token(browser)}
        browser.post(str(page.url), data=form)
        assert statuses() == [200, 200, 200]
        assert hub.hub.stop() == 0
        hub = pool(runners=runners)
        assert any(name.startswith("nexus_session_") for name in browser.cookies)
        assert statuses() == [200, 200, 200]


def test_the_server_ends_when_it_is_asked_to(pool: Start) -> None:
    hub = pool("--pool-stop-seconds", "1")
    hub.create("ann")
    hub.create(".temp")
    hub.threads.submit(hub.send, "ann", "stall", request_id="mine")
    hub.begun("ann", "stall")
    hub.worker()
    assert hub.result("shutdown_server")["success"]
    assert hub.hub.process.wait(180) == 0
    assert not hub.token_file.exists()
    assert not hub.left()
    again = pool()
    assert again.agents().keys() == {"ann"}
    assert again.send("ann", "stall", request_id="mine")["error"]["data"]["code"] == "TURN_INTERRUPTED"


def test_the_server_ends_when_all_agents_may_go(pool: Start) -> None:
    hub = pool()
    for name in ("ann", "bob"):
        hub.create(name)
    assert hub.result("shutdown", "/agent/ann") == {"success": True}
    assert hub.agents()["ann"]["should_shutdown"]
    assert "went on with this" in hub.send("ann", "this")["result"]["content"], "it still answers"
    hub.worker()
    assert hub.result("shutdown", "/agent/bob") == {"success": True}
    assert hub.hub.process.wait(180) == 0
    assert not hub.token_file.exists()
    assert not hub.left()


def test_a_turn_under_way_may_finish_while_the_server_ends(pool: Start) -> None:
    brief = '[runners.brief]\nkind = "rehearsal"\nscript = [{ wait = 1, say = "finished" }]\n'
    hub = pool("--pool-stop-seconds", "60", runners=brief)
    hub.result("create_agent", agent_id="ann", model="brief")
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        hub.threads.submit(hub.send, "ann", number.name, request_id=number.name)
        hub.begun("ann", number.name)
        hub.worker()
        assert hub.hub.stop(number) == 0
        assert not hub.left()
        hub = pool("--pool-stop-seconds", "60", runners=brief)
        said = hub.result("send", "/agent/ann", content=number.name, request_id=number.name)
        assert "finished" in said["content"]


def test_two_hubs_of_one_database_have_one_pool_and_the_other_takes_over(tmp_path: Path, cluster: Cluster) -> None:
    database = database_of(tmp_path, cluster.url)
    pools: list[Pool] = []

    def begin(name: str) -> Pool:
        (tmp_path / name).mkdir(mode=0o700)
        pools.append(Pool(tmp_path / name, database=database))
        return pools[-1]

    try:
        one = begin("one")
        one.create("ann")
        assert "went on with a" in one.send("ann", "a")["result"]["content"]
        two = begin("two")
        until(lambda: any("Another server runs this store's pool" in line for line in two.hub.lines))
        assert "went on with b" in two.send("ann", "b")["result"]["content"], "either hub serves it"
        one.kill()
        assert "went on with c" in two.send("ann", "c")["result"]["content"]
        two.worker()
        three = begin("three")
        until(lambda: any("Another server runs this store's pool" in line for line in three.hub.lines))
        assert three.result("shutdown_server")["success"]
        assert two.hub.process.wait(180) == 0, "whichever is asked, the one with the pool ends"
        assert "went on with d" in three.send("ann", "d")["result"]["content"]
        three.worker()
    finally:
        for pool in pools:
            pool.close()
    until(lambda: not any(pool.left() for pool in pools))
