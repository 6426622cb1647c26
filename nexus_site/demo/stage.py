"""Where the demo runs: in a throwaway home of its own, or on the running hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from coordination.toolset import run
from nexus.core.config import CoreSettings, variable
from nexus.core.database.store import instead
from nexus.core.instance import Holder
from nexus.core.operations.caller import Caller, process_connection
from nexus.core.processes import NEUTRAL, own_environment, python
from nexus_site.demo.team import DemoFailure

OPERATOR = Caller(transport="demo", operator="demo", connection=process_connection("demo"))
THEIR_STORE = {variable("db_path"), variable("database_url")}


@dataclass(frozen=True)
class Stage:
    """A store, and how each agent connects to it."""

    description: str
    store: Callable[[], AbstractContextManager[None]]  # inside it, this process reads that store
    transport: Callable[[str], Any]
    # takes the agents and their project: deletes them, and returns what stays
    leave: Callable[[Iterable[str], str], str]


def own_store(home: Path) -> CoreSettings:
    """Return the settings of a throwaway home: the store is a file in it, never the user's own."""
    return CoreSettings.current().replaced(home=home, db_path=None, database_url=None)


def throwaway(home: Path) -> Stage:
    """Return a stage on which each agent starts its own server process, as a client does."""
    environment = {name: value for name, value in own_environment().items() if name not in THEIR_STORE}
    command, *arguments = python("nexus_site", "runmcp", "--home", str(home))

    def transport(agent_id: str) -> Any:
        return stdio_client(StdioServerParameters(command=command, args=arguments, env=environment, cwd=NEUTRAL))

    description = "Each agent has a server process of its own, over a throwaway home."
    return Stage(description, partial(instead, own_store(home)), transport, lambda agents, project: "")


def hub(holder: Holder) -> Stage:
    """Return a stage on which each agent connects to the running hub with its own key."""

    def transport(agent_id: str) -> Any:
        headers = {"Authorization": f"Bearer {_key(agent_id)}"}
        return streamable_http_client(f"{holder.url}/mcp", http_client=create_mcp_http_client(headers=headers))

    description = f"The agents play on the hub at {holder.url}: open it in a browser and look on."
    return Stage(description, nullcontext, transport, _leave)


def _leave(agents: Iterable[str], project_root: str) -> str:
    """End the unfinished work and delete the team's agents; return what stays as history."""
    live = run(OPERATOR, "handoff_list", {"project_root": project_root})
    for row in live["data"]["handoffs"] if live["ok"] else []:
        ended = {"handoff_id": row["handoff_id"], "reason": "The demo ended."}
        if row["claimed_by"] is None:
            run(OPERATOR, "handoff_withdraw", ended)
        else:
            run(OPERATOR, "handoff_reject", {**ended, "project_root": project_root, "agent_id": row["claimed_by"]})
    for agent_id in agents:
        run(OPERATOR, "agent_delete", {"agent_id": agent_id})
    return (
        f"The team left the hub: its agents are deleted. What stays is history: the project {project_root}, with the "
        "messages, handoffs, artifacts and events that you saw. `nexus prune` deletes what may go, in time."
    )


def _key(agent_id: str) -> str:
    """Return a new key for a member of the team."""
    made = run(OPERATOR, "agent_create", {"agent_id": agent_id})
    if not made["ok"]:  # it exists from a demo that was killed
        made = run(OPERATOR, "agent_key_issue", {"agent_id": agent_id})
    if not made["ok"]:
        raise DemoFailure(f"No key for {agent_id}: {made['error']['message']}")
    key: str = made["data"]["api_key"]
    return key
