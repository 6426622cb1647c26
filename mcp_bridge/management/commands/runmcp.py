"""`nexus runmcp`: the MCP server of one agent, on stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from typing import Any

from coordination.services.agents import agent_of_key
from core.apps import nexus_apps
from core.cli import Group, NexusCommand
from core.database import store
from core.operations.caller import Caller, of_process
from core.operations.errors import Code, NexusError
from core.operations.toolsets import Choice
from mcp_bridge import choices

API_KEY = "NEXUS_API_KEY"


class Command(NexusCommand):
    group = Group.CLIENTS
    help = (
        "Serve MCP on stdin and stdout, as an agent's harness starts it.\n"
        f"With {API_KEY} set, the connection acts as that key's agent only, and has the toolsets stored for it unless "
        "--toolsets says otherwise."
    )
    examples = """examples:
  nexus runmcp
  nexus runmcp --home ~/team --trust-mode strict
  nexus runmcp --toolsets all
  claude mcp add nexus -- nexus runmcp

exit codes: 0 stdin closed, SIGINT or SIGTERM; 1 it could not start; stderr has the code and what to do"""

    def run(self, **options: Any) -> None:
        store().prepare()
        for app in nexus_apps():
            app.on_start()
        agent_id = _bound_agent()
        caller = Caller(transport="stdio", agent_id=agent_id, connection=of_process("stdio"))
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(_serve(caller, choices.of_process(agent_id)))
        sys.stderr.flush()
        os._exit(0)  # a plain file's reader thread may still be blocked on its read


def _bound_agent() -> str | None:
    """The agent that the environment's key is for. Raises CONFIG_ERROR for a key that is not valid."""
    key = os.environ.get(API_KEY)
    if key is None:
        return None
    agent_id = agent_of_key(key)
    if agent_id is None:
        raise NexusError(
            Code.CONFIG_ERROR, f"{API_KEY} is no valid key of this store. Issue a new one, or unset it to run unbound."
        )
    return agent_id


async def _serve(caller: Caller, choice: Choice) -> None:
    from mcp_bridge import stdio
    from mcp_bridge.server import build_server

    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(stdio.serve(build_server(lambda _: caller, lambda _: choice), choice[0].reply))
    gc.set_threshold(700, 10, 10)  # Python's own again, after a start with fewer
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, serving.cancel)
    await serving
