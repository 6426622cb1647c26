"""A provider that is out, in the pools of real hubs: known to each of them, whatever is killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.pool import Pool, until
from tests.control.openai_server import Server, refuses, says, serving
from tests.postgres import Cluster, database_of

RUNNERS = '[runners.small]\nkind = "model"\nmodel = "openai:small"\nbase_url = "{url}"\nretries = 0\n'


@pytest.fixture
def server() -> Iterator[tuple[Server, str]]:
    with serving(refuses(429, retry_after="3600")) as started:
        yield started


def out(hub: Pool) -> list[str]:
    """The runners that are out, as a hub says over JSON-RPC."""
    return [outage["runner"] for outage in hub.result("list_outages")["outages"]]


def all_wait(hub: Pool) -> bool:
    """Whether each run waits: one that runs is lost with its worker."""
    return all(run["outcome"] == "queued" for run in hub.operate("pool_list_runs")["runs"])


def has_answered(hub: Pool, agent_id: str) -> bool:
    return any(row["content"] == "Done." for row in hub.messages(agent_id))


def send(hub: Pool, *agents: str) -> None:
    for name in agents:
        hub.create(name, model="small")
        hub.result("send", f"/agent/{name}", content=f"I am for {name}.", timeout_seconds=0)


def test_it_outlives_a_killed_worker_and_a_killed_hub(home: Path, server: tuple[Server, str]) -> None:
    home.mkdir(mode=0o700, exist_ok=True)
    provider, url = server
    pools = [Pool(home, runners=RUNNERS.format(url=url))]
    try:
        send(pools[0], "ann", "bob")
        until(lambda: out(pools[0]) and all_wait(pools[0]))
        killed = pools[0].worker()
        killed.kill()
        until(lambda: pools[0].worker() != killed)
        send(pools[0], "cem")
        pools[0].kill()
        pools.append(Pool(home, runners=RUNNERS.format(url=url)))
        send(pools[1], "eve")
        pools[1].worker()
        assert out(pools[1]) == ["small"] and len(provider.asked) <= 2, "those that ran at once when it began"
        asked, provider.replies = len(provider.asked), [says("Done.")]
        pools[1].result("reset_outage", runner="small")
        for name in ("ann", "bob", "cem", "eve"):
            until(partial(has_answered, pools[1], name))
        assert len(provider.asked) == asked + 4 and out(pools[1]) == []
    finally:
        for pool in pools:
            pool.close()
    until(lambda: not any(pool.left() for pool in pools))


def test_two_hubs_of_one_store_know_it_and_either_resets_it(
    tmp_path: Path, cluster: Cluster, server: tuple[Server, str]
) -> None:
    provider, url = server
    database = database_of(tmp_path, cluster.url)
    pools: list[Pool] = []
    try:
        for name in ("one", "two"):
            (tmp_path / name).mkdir(mode=0o700)
            pools.append(Pool(tmp_path / name, database=database, runners=RUNNERS.format(url=url)))
        one, two = pools
        send(two, "ann")
        until(lambda: out(one))
        assert out(two) == ["small"] and len(provider.asked) == 1
        one.kill()
        two.worker()
        send(two, "bob")
        assert out(two) == ["small"] and len(provider.asked) == 1
        provider.replies = [says("Done.")]
        two.result("reset_outage", runner="small")
        for name in ("ann", "bob"):
            until(partial(has_answered, two, name))
    finally:
        for pool in pools:
            pool.close()
    until(lambda: not any(pool.left() for pool in pools))
