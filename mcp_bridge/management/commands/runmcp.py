"""`nexus runmcp`: the MCP server of one agent, on stdin and stdout."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from mcp_bridge import choices
from mcp_bridge.choices import caller_of_process
from mcp_bridge.config import McpBridgeSettings
from mcp_bridge.relay import AGENT, API_KEY, GREETING, STANDALONE
from nexus.core.apps import mcp_servers, nexus_apps
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller, process_connection
from nexus.core.operations.registry import Choice


class Command(NexusCommand):
    group = CommandGroup.CLIENTS
    help = (
        "Serve MCP on stdin and stdout. An agent's client starts this.\n"
        f"With {API_KEY} set, the connection acts only as that key's agent, and has that agent's stored toolsets "
        "unless --toolsets says otherwise. If a hub serves the home, the hub makes the calls; "
        f"{STANDALONE}=1 keeps them here."
    )
    examples = """examples:
  nexus runmcp
  nexus runmcp --home ~/team --trust-mode strict
  nexus runmcp --toolsets all
  nexus runmcp --as nexus-core        in the place of that program
  claude mcp add nexus -- nexus runmcp

exit codes: 0 stdin closed, SIGINT or SIGTERM; 1 it could not start; stderr has the code and what to do"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--as",
            dest="system",
            metavar="SYSTEM",
            choices=sorted(mcp_servers()),
            help="serve the tools of another system over its files, in its place: " + ", ".join(sorted(mcp_servers())),
        )

    def run(self, **options: Any) -> None:
        store().prepare()
        store().guard()
        for app in nexus_apps():
            app.on_start()
        caller = caller_of_process(
            os.environ.get(API_KEY),
            named=os.environ.get(AGENT),
            transport="stdio",
            connection=process_connection("stdio"),
        )
        named = None
        if settings.NEXUS_SOURCES["toolsets"] != "default":
            named = McpBridgeSettings.current().toolsets
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(_serve(caller, choices.from_process(caller.agent_id, named), options["system"]))
        sys.stderr.flush()
        os._exit(0)  # a plain file's reader thread may still block in its read


async def _serve(caller: Caller, choice: Choice, system: str | None) -> None:
    from mcp_bridge import stdio
    from mcp_bridge.presence import PRESENCE, connected
    from mcp_bridge.server import build_server
    from nexus.core.background_work import work_forever

    loop = asyncio.get_running_loop()
    server = mcp_servers()[system](caller) if system else build_server(lambda _: caller, lambda _: choice)
    serving = asyncio.ensure_future(stdio.serve(server, choice[0].reply))
    gc.freeze()  # what exists stays; only new objects may become garbage
    gc.enable()
    typed = sys.stdin.isatty()
    # The thread that reads a terminal cannot be cancelled, and no call is under way.
    end: Callable[[], object] = partial(os._exit, 0) if typed else serving.cancel
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    if typed:
        sys.stderr.write(GREETING)
    keeping = asyncio.create_task(work_forever(PRESENCE))
    with connected(caller.connection, caller.agent_id):
        await serving
    keeping.cancel()
