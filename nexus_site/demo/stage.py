"""Where the demo plays: in a throwaway home of its own, or on the hub that runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from coordination.toolset import run
from core.instance import Holder
from core.operations.caller import Caller, of_process
from nexus_site.demo.agent import DemoFailure
from nexus_site.settings import BASE_DIR


@dataclass(frozen=True)
class Stage:
    """A store, and how each agent reaches it."""

    told: str
    database: Path
    transport: Callable[[str], Any]


def throwaway(home: Path) -> Stage:
    """Each agent starts a server process of its own, as a harness does."""

    def transport(agent_id: str) -> Any:
        return stdio_client(
            StdioServerParameters(
                command=sys.executable,
                args=["-m", "nexus_site", "runmcp", "--home", str(home)],
                env={**os.environ, "PYTHONPATH": str(BASE_DIR)},
            )
        )

    return Stage("Each agent has a server process of its own, over a throwaway home.", home / "nexus.db", transport)


def hub(holder: Holder, database: Path) -> Stage:
    """Each agent connects to the running hub with a key of its own."""
    url = f"http://{holder.host}:{holder.port}"

    def transport(agent_id: str) -> Any:
        headers = {"Authorization": f"Bearer {_key(agent_id)}"}
        return streamable_http_client(f"{url}/mcp", http_client=create_mcp_http_client(headers=headers))

    return Stage(f"The agents play on the hub at {url}: open it in a browser and look on.", database, transport)


def _key(agent_id: str) -> str:
    """A new key for a member of the team."""
    operator = Caller(transport="demo", operator="demo", connection=of_process("demo"))
    made = run(operator, "agent_create", {"agent_id": agent_id})
    if not made["ok"]:  # it is there from an earlier demo
        made = run(operator, "agent_key_issue", {"agent_id": agent_id})
    if not made["ok"]:
        raise DemoFailure(f"No key for {agent_id}: {made['error']['message']}")
    key: str = made["data"]["api_key"]
    return key
