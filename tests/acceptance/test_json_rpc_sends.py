"""Sends over JSON-RPC to agents over a model that obeys: side by side, and when its provider fails, is slow, cuts an
answer off or answers late."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.hub import ROOT
from tests.acceptance.pool import Pool, until
from tests.conftest import Furnish
from tests.control.openai_server import Handler, Reply, cuts_off, hangs_up, refuses, says, serving

RUNNERS = 'default = "small"\n[runners.small]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\n'
BOUND = 60  # seconds that no answer here takes; one that is tried again later takes far longer
FAULTS: dict[str, Reply] = {
    "cut": cuts_off("half ", "an "),
    "hung-up": hangs_up,
    "500": refuses(500),
    "429": refuses(429, retry_after="604800"),
    "401": refuses(401, "Authentication required"),
    "402": refuses(402),
    "400": refuses(400),
}


class Obeys:
    """A provider that does what the last message says; `held` are those that wait for `release`."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self.release = threading.Event()

    def __call__(self, handler: Handler) -> None:
        verb, _, rest = handler.body["messages"][-1]["content"].partition(" ")
        if verb == "hold":
            self.held.append(rest)
            self.release.wait(BOUND)
        (FAULTS[rest] if verb == "meet" else says(f"heard {rest}"))(handler)


class Client:
    """A hub over that provider, and who sends to its agents."""

    def __init__(self, pool: Pool, provider: Obeys) -> None:
        self.pool, self.provider = pool, provider
        self.threads = ThreadPoolExecutor(8)
        self.made = 0

    def agents(self, count: int) -> list[str]:
        """New agents."""
        self.made += count
        names = [f"a{number}" for number in range(self.made - count, self.made)]
        for name in names:
            self.pool.result("create_agent", agent_id=name)
        self.provider.held.clear()
        self.provider.release.clear()
        return names

    def post(self, method: str, agent_id: str | None = None, /, **params: Any) -> dict[str, Any]:
        """The answer to a call."""
        path = "/rpc" if agent_id is None else f"/agent/{agent_id}"
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"authorization": f"Bearer {self.pool.token}"}
        answer: dict[str, Any] = httpx.post(
            self.pool.hub.url + path, json=message, headers=headers, timeout=BOUND
        ).json()
        return answer

    def send(self, agent_id: str, content: str, **params: Any) -> dict[str, Any]:
        """The result of a send."""
        answer = self.post("send", agent_id, content=content, **params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def heard(self, agent_id: str, content: str) -> bool:
        """Whether a send is answered."""
        return bool(self.send(agent_id, f"say {content}")["content"] == f"heard {content}")

    def later(self, agent_id: str, content: str, **params: Any) -> Any:
        """A send whose answer comes later."""
        return self.threads.submit(self.post, "send", agent_id, content=content, **params)

    def holds(self, *contents: str) -> None:
        """Return once the provider holds these back."""
        until(lambda: sorted(self.provider.held) == sorted(contents))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Client]:
    provider = Obeys()
    with serving(provider) as (_, url):
        pool = Pool(furnish(tmp_path_factory.mktemp("sends") / "home"), runners=RUNNERS.format(url=url))
        try:
            yield Client(pool, provider)
        finally:
            provider.release.set()
            pool.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_send_whose_provider_fails_says_so_and_the_next_ones_are_answered(client: Client, fault: str) -> None:
    one, other = client.agents(2)
    error = client.post("send", one, content=f"meet {fault}", request_id=fault)["error"]
    assert (error["code"], error["data"]["code"]) == (-32002, "TURN_FAILED")
    assert error["data"]["details"]["why"] and error["data"]["details"]["request_id"] == fault
    assert client.heard(one, "next") and client.heard(other, "other")
    assert client.post("send", one, content=f"meet {fault}", request_id=fault)["error"]["code"] == -32002, "once"


@pytest.mark.parametrize("fault", ["429", "401", "cut"])
def test_two_agents_whose_provider_fails_hold_no_send_of_a_third(client: Client, fault: str) -> None:
    *failing, third = client.agents(3)
    for agent in failing:
        assert client.post("send", agent, content=f"meet {fault}")["error"]["code"] == -32002
    assert all(client.heard(agent, "again") for agent in (third, *failing))


@pytest.mark.parametrize("fault", ["429", "401", "cut"])
def test_a_send_that_nobody_waits_for_is_tried_again_and_holds_nobody(client: Client, fault: str) -> None:
    one, other = client.agents(2)
    client.send(one, f"meet {fault}", request_id="r", timeout_seconds=0)

    def put_back() -> bool:
        (run,) = client.pool.result("list_runs", agent_id=one, limit=1)["runs"]
        return (run["put_back"], run["outcome"]) == (1, "queued")

    until(put_back)
    assert client.heard(other, "other") and client.heard(one, "own")
    error = client.post("send", one, content=f"meet {fault}", request_id="r")["error"]
    assert error["code"] == -32002, "now somebody waits"


def test_a_first_message_whose_provider_fails_says_so_and_the_agent_answers(client: Client) -> None:
    asked = {"agent_id": "first", "initial_message": "meet cut", "wait_for_initial_response": True}
    assert client.post("create_agent", **asked)["error"]["data"]["code"] == "TURN_FAILED"
    assert client.heard("first", "next")


def test_agents_side_by_side_wait_for_no_slow_one(client: Client) -> None:
    slow, other = client.agents(2)
    answer = client.later(slow, "hold late")
    client.holds("late")
    assert client.heard(other, "meanwhile") and not answer.done()
    client.provider.release.set()
    assert answer.result(BOUND)["result"]["content"] == "heard late"


def test_an_agent_takes_one_message_at_a_time_in_the_order_of_their_arrival(client: Client) -> None:
    one, other = client.agents(2)
    first = client.later(one, "hold first")
    client.holds("first")
    second = client.send(one, "hold second", request_id="second", timeout_seconds=0)
    assert second == {"request_id": "second", "status": "queued"}
    third = client.later(one, "say third")
    beside = client.later(other, "hold beside")
    client.holds("first", "beside")
    client.provider.release.set()
    assert [each.result(BOUND)["result"]["content"] for each in (first, third, beside)] == [
        *("heard first", "heard third", "heard beside"),
    ]
    assert client.provider.held.index("second") > 0
    assert client.send(one, "hold second", request_id="second")["content"] == "heard second"


def test_an_answer_that_is_late_is_there_for_who_asks_again(client: Client) -> None:
    (one,) = client.agents(1)
    assert client.send(one, "hold late", request_id="r", timeout_seconds=0.01)["status"] in ("queued", "running")
    client.holds("late")
    again = client.later(one, "hold late", request_id="r")
    client.provider.release.set()
    assert again.result(BOUND)["result"]["content"] == "heard late" and client.provider.held == ["late"]


def test_a_cancel_ends_a_running_and_a_queued_send_and_nothing_else(client: Client) -> None:
    one, other = client.agents(2)
    running, beside = client.later(one, "hold running", request_id="r"), client.later(other, "hold on", request_id="r")
    client.holds("running", "on")
    queued = client.later(one, "hold queued", request_id=2)
    until(lambda: client.post("cancel", one, request_id=2)["result"] == {"cancelled": True, "request_id": 2})
    assert queued.result(BOUND)["result"] == {"cancelled": True, "request_id": 2}
    assert client.post("cancel", one, request_id="r")["result"] == {"cancelled": True, "request_id": "r"}
    assert running.result(BOUND)["result"] == {"cancelled": True, "request_id": "r"}
    gone = {"cancelled": False, "request_id": "r", "reason": "not_found_or_completed"}
    assert client.post("cancel", one, request_id="r")["result"] == gone
    assert client.heard(one, "next") and not beside.done()
    client.provider.release.set()
    assert beside.result(BOUND)["result"]["content"] == "heard on"


@pytest.mark.parametrize("request_id", ["r", "7", 7, 0, -1])
def test_a_request_id_is_answered_as_it_was_given(client: Client, request_id: str | int) -> None:
    one, other = client.agents(2)
    for agent in (one, other):
        answer = client.send(agent, f"say {agent}", request_id=request_id)
        assert (answer["content"], answer["request_id"]) == (f"heard {agent}", request_id)
        assert type(answer["request_id"]) is type(request_id)
    assert client.send(one, f"say {one}", request_id=request_id)["content"] == f"heard {one}", "not asked again"
    assert client.post("send", one, content="say more", request_id=request_id)["error"]["code"] == -32602
    cancelled = client.post("cancel", one, request_id=request_id)["result"]
    assert cancelled == {"cancelled": False, "request_id": request_id, "reason": "not_found_or_completed"}


def test_a_request_without_an_id_of_its_own_gets_one(client: Client) -> None:
    (one,) = client.agents(1)
    made = [client.send(one, "say x")["request_id"] for _ in range(2)]
    assert len({int(each, 16) for each in made}) == 2 and {len(each) for each in made} == {8}


def test_what_an_agent_process_says_stops_nobody_and_one_alone_cannot(home: Path) -> None:
    command = json.dumps([sys.executable, str(ROOT / "tests" / "control" / "acp_agent.py")])
    runner = f'[runners.small]\nkind = "acp"\ncommand = {command}\nread_paths = [{json.dumps(str(ROOT))}]\n'
    home.mkdir(mode=0o700, exist_ok=True)
    pool = Pool(home, runners=runner)
    client = Client(pool, Obeys())

    def outages() -> list[tuple[str, bool]]:
        return [(each["fault"], each["confirmed"]) for each in pool.result("list_outages")["outages"]]

    try:
        for name in ("ann", "bob", "cem", "dan"):
            pool.create(name, model="small")
        error = client.post("send", "ann", content="fault none Authentication required, retry after 604800")["error"]
        assert error["code"] == -32002
        assert client.send("ann", "echo retry after 604800")["content"] and outages() == []
        client.send("ann", "fault authentication_failed x", timeout_seconds=0)
        until(lambda: outages() == [("key", False)])
        assert "hello" in client.send("bob", "echo hello")["content"]
        assert outages() == [], "the first success ends it"
        for name in ("bob", "cem"):
            client.send(name, "fault rate_limit x", timeout_seconds=0)
        until(lambda: outages() == [("overloaded", True)])
        assert "hello" in client.send("dan", "echo hello")["content"], "who waits is not held"
        assert outages() == []
    finally:
        pool.close()
    until(lambda: not pool.left())
