"""Turns of the tests' agent in this process: the same protocol over a pair of sockets, without a program's start."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import acp as protocol

from nexus.control.agents.turns import Ended
from nexus.control.models import PoolAgent
from nexus.control.runners import acp, processes
from nexus.control.runners.acp_client import PoolClient
from nexus.control.runners.base import Scene
from nexus.control.runners_file import Acp
from tests.control.acp_agent import Agent
from tests.control.pool import Take
from tests.control.turns import Played


class Program:
    """What a conversation needs of a running program."""

    def __init__(self, stdout: asyncio.StreamReader, stdin: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self.stdout, self.stdin, self.task = stdout, stdin, task

    def kill(self) -> None:
        self.task.cancel()


@asynccontextmanager
async def running(flags: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[Program]:
    """The agent, within the block."""
    ours, theirs = socket.socketpair()
    stdout, stdin = await asyncio.open_connection(sock=ours)
    reader, writer = await asyncio.open_connection(sock=theirs, limit=2**24)
    agent = cast(Any, Agent(flags, env, writer))
    task = asyncio.create_task(protocol.run_agent(agent, writer, reader, use_unstable_protocol=True))
    try:
        yield Program(stdout, stdin, task)
    finally:
        for each in (stdin, writer):
            each.transport.abort()  # or it would go on to write what nobody reads
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # how it ended is what the conversation shows


async def take(runner: Acp, scene: Scene, *, is_confined: bool = False) -> Ended:
    """Take a turn, as `acp.take` does with a program."""

    async def run(launch: acp.Launch, key: str) -> Ended:
        env = {**processes.environment(*runner.env_from), **runner.env, "NEXUS_API_KEY": key}
        client = PoolClient(launch.scene, cast(Any, None), runner.max_iterations)
        async with running(runner.command, env) as program:
            return await acp.converse(launch, client, cast(Any, program), None)

    return await acp.recorded(runner, scene, run, is_confined=is_confined)


def played(agent: PoolAgent, *flags: str, **more: Any) -> Played:
    """An agent whose turns are taken here."""
    return Played(agent, Acp(kind="acp", name="agent", command=["agent", *flags], **more), take)


def taken_here(*flags: str) -> Take:
    """Turns that the pool's worker has taken here, for `plays`."""
    runner = Acp(kind="acp", name="agent", command=["agent", *flags])
    return lambda _, scene: take(runner, scene)
