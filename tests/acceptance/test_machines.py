"""Several machines: a hub, an agent's server and the database, each at an address of its own, one cut off and back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.acceptance.hub import ROOT, start
from tests.acceptance.pool import until
from tests.acceptance.processes import environment, nexus
from tests.postgres import Cluster, database_of, programs

NETWORK = f"10.213.{os.getpid() % 256}."  # suites beside each other each have their own
DATABASE, HUB, AGENT = (f"{NETWORK}{number}" for number in (1, 2, 3))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@dataclass(frozen=True)
class Machine:
    """A network namespace with one cable to the switch."""

    name: str

    def command(self, *arguments: str) -> list[str]:
        """A command as it is run there."""
        return ["ip", "netns", "exec", self.name, *arguments]

    def cable(self, state: str) -> None:
        """Pull the cable out, with `down`, or put it in again, with `up`: nobody is told, nothing arrives."""
        ip("link", "set", f"c{self.name}", state)


@pytest.fixture
def machines() -> Iterator[tuple[Machine, Machine]]:
    """A hub's and an agent's, on a switch that this machine, with the database, is at as well."""
    if os.geteuid() or shutil.which("ip") is None or programs() is None:
        pytest.skip("needs root, `ip` and PostgreSQL")
    own = str(os.getpid())
    switch, hub, agent = f"sw{own}", Machine(f"h{own}"), Machine(f"a{own}")
    try:
        ip("link", "add", switch, "type", "bridge")
    except subprocess.CalledProcessError:
        pytest.skip("may make no network here")
    try:
        ip("addr", "add", f"{DATABASE}/24", "dev", switch)
        ip("link", "set", switch, "up")
        for machine, address in ((hub, HUB), (agent, AGENT)):
            ip("netns", "add", machine.name)
            ip("link", "add", f"c{machine.name}", "type", "veth", "peer", "name", "eth0", "netns", machine.name)
            ip("link", "set", f"c{machine.name}", "master", switch, "up")
            ip("-n", machine.name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", machine.name, "link", "set", "eth0", "up")
            ip("-n", machine.name, "link", "set", "lo", "up")
        yield hub, agent
    finally:
        for machine in (hub, agent):
            subprocess.run(["ip", "netns", "del", machine.name], capture_output=True)
        ip("link", "del", switch)


async def test_an_agents_server_is_cut_off_from_the_database_and_back(
    machines: tuple[Machine, Machine], tmp_path: Path, project: str
) -> None:
    hub_machine, agent_machine = machines
    with Cluster(host=DATABASE) as cluster:
        url = database_of(tmp_path, cluster.url)
        made = nexus(tmp_path / "here", "agents", "create", "ana", "--json", NEXUS_DATABASE_URL=url)
        key = made.stdout.partition("nxs_")[2].partition('"')[0]
        serve = ["manage.py", "serve", "--host", HUB, "--port", "8420"]
        hub = start(tmp_path / "hub", command=hub_machine.command(sys.executable, *serve), database=url)
        try:
            runmcp = agent_machine.command(sys.executable, str(ROOT / "manage.py"), "runmcp")
            environ = environment(tmp_path / "agent", NEXUS_DATABASE_URL=url)
            process = StdioServerParameters(command=runmcp[0], args=runmcp[1:], env=environ)

            def send(subject: str) -> dict[str, Any]:
                letter = {"project_root": project, "from_agent_id": "ana", "subject": subject, "body": "b"}
                answer = httpx.post(
                    f"http://{HUB}:8420/api/v1/operations/message_create",
                    json={**letter, "target": {"strategy": "direct", "agent_id": "bob"}},
                    headers={"x-api-key": f"nxs_{key}"},
                ).json()
                assert answer["ok"], answer
                data: dict[str, Any] = answer["data"]
                return data

            async with Client(stdio_client(process)) as client:

                async def call(name: str, **arguments: Any) -> dict[str, Any]:
                    result = await client.call_tool(name, arguments)
                    envelope = result.structured_content
                    assert isinstance(envelope, dict)
                    return envelope

                assert (await call("agent_register", agent_id="bob"))["ok"]
                cursor = send("before")["event_id"]
                agent_machine.cable("down")
                error = (await call("inbox_pull", agent_id="bob"))["error"]
                assert (error["code"], error["details"]["retryable"]) == ("DB_ERROR", True)
                send("meanwhile")  # nobody else is held up
                agent_machine.cable("up")
                wait = {"project_root": project, "agent_id": "bob", "stream": "workspace", "cursor": cursor}
                while not (back := await call("event_wait", **wait, timeout_seconds=20))["ok"]:
                    assert back["error"]["details"]["retryable"]
                assert [event["payload"]["subject"] for event in back["data"]["events"]] == ["meanwhile"]
                pulled = (await call("inbox_pull", agent_id="bob"))["data"]["messages"]
                assert [message["subject"] for message in pulled] == ["before", "meanwhile"]
                ids = [message["message_id"] for message in pulled]
                assert (await call("inbox_ack", agent_id="bob", message_ids=ids))["ok"]
                cluster.stop()
                cluster.start()
                until(lambda: httpx.get(f"http://{HUB}:8420/readyz").is_success)
                assert (await call("inbox_count", agent_id="bob"))["data"]["unread"] == 0
        finally:
            hub.process.kill()
            hub.process.wait()
