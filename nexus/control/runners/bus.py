"""The bus for an agent that runs as a process: an MCP server on stdio that is served from outside the sandbox.

Inside the sandbox there is only a relay to a socket. The server runs outside, as that agent, so neither the store nor a
key has to be readable by the agent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coordination.services import keys
from nexus.control.runners import processes
from nexus.control.runners.base import RunnerFailed
from nexus.core.processes import NEUTRAL, own_environment, python
from nexus.core.waiting import WRITERS, in_thread

RELAY = Path(__file__).parent / "programs" / "relay.py"
NAME = "nexus"  # the server's name for agents
SOCKET = "bus"
MOST_CONNECTIONS = 4  # of one agent at once


@dataclass(frozen=True)
class Bus:
    """The command by which an agent reaches the bus; it speaks MCP on stdio."""

    command: str
    args: tuple[str, ...]


@contextlib.asynccontextmanager
async def key_of(agent_id: str) -> AsyncIterator[str]:
    """Yield a key of the agent that is valid within the block, besides one that an operator issued."""
    key = await in_thread(WRITERS, partial(keys.lend, agent_id=agent_id))
    try:
        yield key
    finally:
        await asyncio.shield(in_thread(WRITERS, partial(keys.revoke_lent, key)))


@contextlib.asynccontextmanager
async def served(scratch: str, key: str) -> AsyncIterator[Bus]:
    """Serve the bus within the block, on a socket in the directory `scratch`, as the agent of `key`."""
    path, serving = os.path.join(scratch, SOCKET), set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(serving) < MOST_CONNECTIONS:
            serving.add(task)
            try:
                await _serve(reader, writer, key)
            except asyncio.CancelledError:
                pass  # the turn is over; asyncio would log the cancelled task of a connection
            finally:
                serving.discard(task)
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield Bus(sys.executable, ("-I", "-S", str(RELAY), path))
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: str) -> None:
    command, env = python("nexus_site", "runmcp"), own_environment(NEXUS_API_KEY=key)
    with contextlib.suppress(RunnerFailed, ConnectionError):
        async with processes.running(command, cwd=NEUTRAL, env=env) as program:
            inward = asyncio.create_task(_pump(reader, program.stdin))
            try:
                await _pump(program.stdout, writer)
            finally:
                inward.cancel()
                await asyncio.gather(inward, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(processes.CHUNK):
        writer.write(chunk)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
