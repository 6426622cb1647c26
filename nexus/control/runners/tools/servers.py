"""The MCP servers of a runner of kind `model`: programs of a turn in its agent's sandbox, whose tools its model calls.

A server is not trusted: what it sends is bounded, its tools have names of their own, and an operator is asked about
each call that no rule decides.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from asyncio import Event, Future, StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, Implementation, PaginatedRequestParams, TextContent, jsonrpc_message_adapter
from mcp.types import Tool as Offered
from pydantic import ValidationError

from nexus.control.models import Role
from nexus.control.permissions.rules import Action, Kind, Verdict
from nexus.control.runners import processes, sandbox
from nexus.control.runners.base import SHORTEST_SECRET, RunnerFailed, Scene, Secrets, in_share, secret_values
from nexus.control.runners.processes import OutputLines, Overdone
from nexus.control.runners.tools.catalog import Tool, decided
from nexus.control.runners.tools.files import ToolFailed
from nexus.control.runners_file import McpServer, Model
from nexus.core.operations.errors import NexusError

log = logging.getLogger(__name__)

START_SECONDS = 30.0  # until it has said which tools it has
CALL_SECONDS = 300.0
LEAVE_SECONDS = 2.0  # to end by itself, when the turn is over
LONGEST_LINE = 4 * 1024 * 1024  # bytes of a message
MOST_STRUCTURE = 1024 * 1024  # bytes of a message outside its strings
MOST_BYTES = 256 * 1024 * 1024  # of a turn
MOST_NONSENSE = 100  # lines of a turn that are not messages
MOST_TOOLS, MOST_PAGES = 128, 16  # of one server
LONGEST_NAME = 64  # characters; models take no longer ones
LONGEST_DESCRIPTION, LONGEST_SCHEMA = 2_000, 32_768  # characters
LONGEST_DETAIL = 4_000  # characters of the arguments that an operator is shown
LONGEST_WHY = 500  # characters of what a server says of a failure
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


@asynccontextmanager
async def served(runner: Model, scene: Scene) -> AsyncIterator[Mapping[str, Tool]]:
    """Run the servers of a runner within the block and yield their tools by name. The transcript says which are not
    there, and why."""
    if not runner.mcp_servers:
        yield {}
        return
    over, tools = Event(), dict[str, Tool]()
    ready: dict[str, Future[list[Tool]]] = {name: Future() for name in runner.mcp_servers}
    running = [
        asyncio.create_task(_run(name, server, runner, scene, ready[name], over))
        for name, server in runner.mcp_servers.items()
    ]
    try:
        for name, found in ready.items():
            try:
                for tool in await found:
                    tools.setdefault(tool.name, tool)
            except RunnerFailed as failed:
                text = f"[The MCP server {name} is not there in this turn: {failed}]"
                await scene.say(Role.TOOL, text, tool_call_id=f"mcp_{name}")
        yield tools
    except BaseException:
        for task in running:
            task.cancel()  # also one that has not said yet which tools it has
        raise
    finally:
        over.set()
        await asyncio.gather(*running, return_exceptions=True)


async def _run(
    name: str, server: McpServer, runner: Model, scene: Scene, ready: Future[list[Tool]], over: Event
) -> None:
    """Run a server until `over`. `ready` gets its tools, or why there are none."""
    given = (value for value in server.env.values() if len(value) >= SHORTEST_SECRET)
    secrets = Secrets(*secret_values(server.env_from), *given)
    try:
        env = await in_share(scene.agent, partial(processes.environment_of, scene.agent, server))
        await in_share(scene.agent, partial(sandbox.check_programs, runner))
        confined = partial(processes.confined, server.command, runner, scene.agent, cwd=scene.agent.cwd)
        line = await in_share(scene.agent, confined)
        async with processes.running(line, cwd=scene.agent.cwd, env=env, grace=LEAVE_SECONDS) as program:
            async with _session(program) as session:
                # What fails in a session's block would come out of it as a group of errors.
                why = await _offer(name, session, secrets, ready)
                if why is None:
                    await over.wait()
            if why is not None:
                said = program.stderr.text.strip().splitlines()
                raise RunnerFailed(secrets.cut(": ".join([why, *said[-1:]]), LONGEST_WHY))
    except Exception as error:
        if not isinstance(error, RunnerFailed | NexusError):
            log.exception("an MCP server could not be run")
        if not ready.done():
            known = str(error) if isinstance(error, RunnerFailed | NexusError) else "the hub failed; see its log"
            ready.set_exception(RunnerFailed(known))
    finally:
        ready.cancel()


@asynccontextmanager
async def _session(program: processes.Running) -> AsyncIterator[ClientSession]:
    answers, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, requests = anyio.create_memory_object_stream[SessionMessage](0)
    pumps = [
        asyncio.create_task(_receive(program.stdout, answers)),
        asyncio.create_task(_send(program.stdin, requests)),
    ]
    try:
        async with ClientSession(
            read, write, read_timeout_seconds=CALL_SECONDS, client_info=Implementation(name="nexus", version="1")
        ) as session:
            yield session
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _receive(stdout: StreamReader, answers: ObjectSendStream[SessionMessage | Exception]) -> None:
    """Pass on a server's messages, until its output ends or exceeds a limit; the session then ends."""
    lines, nonsense = OutputLines(stdout, longest=LONGEST_LINE, structure=MOST_STRUCTURE, most=MOST_BYTES), 0
    async with answers:
        with suppress(Overdone, ConnectionError):
            while nonsense <= MOST_NONSENSE and (line := await lines.next()) is not None:
                try:
                    message = jsonrpc_message_adapter.validate_json(line)
                except ValidationError:
                    nonsense += 1  # many programs greet on stdout
                else:
                    await answers.send(SessionMessage(message))


async def _send(stdin: StreamWriter, requests: ObjectReceiveStream[SessionMessage]) -> None:
    async with requests:
        async for request in requests:
            stdin.write(request.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
            await stdin.drain()


async def _offer(name: str, session: ClientSession, secrets: Secrets, ready: Future[list[Tool]]) -> str | None:
    """Pass on the tools of a server; return why there are none."""
    try:
        async with asyncio.timeout(START_SECONDS):
            await session.initialize()
            found = await _offered(session)
    except TimeoutError:
        return f"it did not say within {START_SECONDS:g} s which tools it has"
    except (MCPError, RuntimeError, ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
        return f"it does not speak MCP ({str(error)[:LONGEST_WHY] or 'it ended'})"
    tools = (_tool(name, each, session, secrets) for each in found)
    ready.set_result([tool for tool in tools if len(json.dumps(tool.schema)) <= LONGEST_SCHEMA])
    return None


async def _offered(session: ClientSession) -> Sequence[Offered]:
    found, cursor = list[Offered](), None
    for _ in range(MOST_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor))
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) >= MOST_TOOLS:
            break
    return found[:MOST_TOOLS]


def _tool(server: str, offered: Offered, session: ClientSession, secrets: Secrets) -> Tool:
    name = NOT_IN_NAMES.sub("_", f"{server}__{offered.name}")[:LONGEST_NAME]
    description = (offered.description or offered.title or name)[:LONGEST_DESCRIPTION]
    return Tool(name, description, offered.input_schema, partial(_called, session, offered.name, name, secrets))


async def _called(
    session: ClientSession, tool: str, name: str, secrets: Secrets, scene: Scene, arguments: Mapping[str, Any]
) -> str:
    detail = json.dumps(arguments, ensure_ascii=False)[:LONGEST_DETAIL]
    await decided(scene, Action(Kind.OTHER, name, cwd=scene.agent.cwd), Verdict.ASKED, f"Call {name}", detail)
    try:
        result = await session.call_tool(tool, dict(arguments))
    except (MCPError, RuntimeError, ValueError, anyio.ClosedResourceError, anyio.BrokenResourceError) as error:
        raise ToolFailed(secrets.cut(f"{name} failed: {error or 'its server ended'}", LONGEST_WHY)) from None
    if not isinstance(result, CallToolResult):
        raise ToolFailed(f"{name} wants to ask something, which nobody here can answer.")
    parts = (part.text if isinstance(part, TextContent) else f"[{part.type} left out]" for part in result.content)
    text = secrets.struck("\n".join(parts))
    if result.is_error:
        raise ToolFailed(text or f"{name} failed.")
    return text
