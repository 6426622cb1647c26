"""Sends over JSON-RPC to agents over a model that obeys: side by side, and when its provider fails or is slow. What
becomes of a send otherwise, tests/control/test_calls.py plays."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.pool import Pool, until
from tests.conftest import Furnish
from tests.control.openai_server import Handler, Reply, cuts_off, refuses, says, serving

RUNNERS = 'default = "small"\n[runners.small]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\n'
BOUND = 60  # seconds that no answer here takes; one that is tried again later takes far longer
FAULTS: dict[str, Reply] = {"cut": cuts_off("half ", "an "), "429": refuses(429, retry_after="604800")}


class Obeys:
    """A provider that does what the last message says; it holds some back until `release`."""

    def __init__(self) -> None:
        self.holds, self.release = threading.Event(), threading.Event()

    def __call__(self, handler: Handler) -> None:
        verb, _, rest = handler.body["messages"][-1]["content"].partition(" ")
        if verb == "hold":
            self.holds.set()
            self.release.wait(BOUND)
        (FAULTS[rest] if verb == "meet" else says(f"heard {rest}"))(handler)


@pytest.fixture(scope="module")
def provider() -> Obeys:
    return Obeys()


@pytest.fixture(scope="module")
def pool(provider: Obeys, tmp_path_factory: pytest.TempPathFactory, furnish: Furnish) -> Iterator[Pool]:
    """A hub over that provider."""
    with serving(provider) as (_, url):
        pool = Pool(furnish(tmp_path_factory.mktemp("sends") / "home"), runners=RUNNERS.format(url=url))
        yield pool
        provider.release.set()
        pool.close()
        until(lambda: not pool.left())


def heard(pool: Pool, agent_id: str, content: str) -> bool:
    """Whether a send is answered."""
    result: dict[str, Any] = pool.send(agent_id, f"say {content}")["result"]
    return bool(result["content"] == f"heard {content}")


@pytest.mark.parametrize("fault", FAULTS)
def test_two_agents_whose_provider_fails_hold_no_send_of_a_third(pool: Pool, fault: str) -> None:
    *failing, third = (f"{fault}-{number}" for number in range(3))
    for agent in (*failing, third):
        pool.result("create_agent", agent_id=agent)
    for agent in failing:
        error: Any = pool.send(agent, f"meet {fault}", request_id=fault)["error"]
        assert (error["code"], error["data"]["code"]) == (-32002, "TURN_FAILED")
        assert error["data"]["details"]["why"] and error["data"]["details"]["request_id"] == fault
    assert all(heard(pool, agent, "again") for agent in (third, *failing))


def test_agents_side_by_side_wait_for_no_slow_one(pool: Pool, provider: Obeys) -> None:
    for agent in ("slow", "other"):
        pool.result("create_agent", agent_id=agent)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(pool.send, "slow", "hold late")
        assert provider.holds.wait(BOUND)
        assert heard(pool, "other", "meanwhile") and not answer.done()
        provider.release.set()
        assert answer.result(BOUND)["result"]["content"] == "heard late"
