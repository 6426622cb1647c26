"""What agents on stdio pay for a call, a cycle of a handoff and a wake, each beside a call that does nothing.

python -m benchmarks.stdio
python -m benchmarks.stdio --first-turn   # the calls and characters of an agent's first turn, and its tokens if the
                                          # package bpe-openai is installed
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp_types import Tool

from benchmarks.harness import WARM_UP, Benchmark, Figures, StdioCalls, amount, call, seconds

EVENTS = 100  # in a page of the log
SENDER = {"from_agent_id": "sender"}
RECEIVER = {"agent_id": "receiver"}


async def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By kind of call, its median and how many calls that do nothing take as long."""
    (scratch / "project").mkdir()
    if options.first_turn:
        return await first_turn(scratch)
    project = str(scratch / "project")
    log = {"project_root": project, **RECEIVER, "stream": "workspace"}
    async with StdioCalls(scratch) as calls:
        store = sqlite3.connect(scratch / "raw.db", isolation_level=None)
        store.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE rows (text TEXT)")
        one, other = await calls.connect(scratch / "home"), await calls.connect(scratch / "home")
        for agent_id in ("sender", "receiver"):
            await call(one, "agent_register", agent_id=agent_id)
        for _ in range(EVENTS):  # so that a page of the log is full
            await send(one, project)
            await receive(one)
        for _ in range(WARM_UP + options.calls):
            await calls.time("message_create", send(one, project))
            await calls.time("inbox_pull, inbox_ack", receive(one))
            await calls.time("handoff cycle", hand_over(one, one, project))
            await calls.time("handoff cycle, two processes", hand_over(one, other, project))
            await calls.time("inbox_count", call(one, "inbox_count", **RECEIVER))
            await calls.time("event_get of 100", call(one, "event_get", **log, limit=EVENTS))
            calls.note("three durable rows, SQLite alone", seconds(lambda: write_rows(store)))
        for _ in range(WARM_UP + max(20, options.calls // 8)):
            await wake(calls, one, other, project, log)
        return calls.figures()


async def first_turn(scratch: Path) -> Figures:
    """What an agent reads and calls until it is at work, where one letter waits for it: with `join`, and call by call
    as before there was one."""
    return {way: await turn(scratch, way) for way in ("with join", "call by call")}


async def turn(scratch: Path, way: str) -> dict[str, Any]:
    """A first turn with the toolsets that `nexus setup` chooses."""
    place, me = {"project_root": str(scratch / "project")}, {"agent_id": "receiver"}
    letter = {"subject": "Hello", "body": "Take the parser, please.", "target": {"strategy": "direct", **me}}
    made: list[str] = []
    async with StdioCalls(scratch) as calls:
        other = await calls.connect(scratch / way)
        await call(other, "agent_register", **me)
        await call(other, "join", agent_id="sender", **place)
        await call(other, "message_create", **letter)
        client = await calls.connect(scratch / way, "--toolsets", "coordination,files,questions")
        tools = (await client.list_tools()).tools

        async def act(tool: str, **given: Any) -> dict[str, Any]:
            data = await call(client, tool, **given)
            made.append(tool + json.dumps(given) + json.dumps(data))
            return data

        if way == "with join":
            await act("join", **me, **place)
        else:
            workspace_id = (await act("workspace_resolve", **place))["workspace_id"]
            await act("agent_register", **me)
            await act("session_open", **me, workspace_id=workspace_id)
            await act("agent_list")
            await act("inbox_count", **me)
            await act("handoff_list_available", **place, **me)
        [message] = (await act("inbox_pull", **me))["messages"]
        await act("inbox_ack", **me, message_ids=[message["message_id"]])
        texts = {
            "tools": "".join(map(shown, tools)),
            "instructions": client.instructions or "",
            "calls and answers": "".join(made),
        }
    return {"calls": len(made), "tools": len(tools)} | {
        f"{unit} of {what}": count(text) for unit, count in counters().items() for what, text in texts.items()
    }


def shown(tool: Tool) -> str:
    """What a client puts into its model's context for a tool."""
    return tool.name + str(tool.description) + json.dumps(tool.input_schema)


def counters() -> dict[str, Callable[[str], int]]:
    """How texts are counted, by unit."""
    try:
        encoding = importlib.import_module("bpe_openai").get_encoding("o200k_base")
    except ImportError:
        return {"characters": len}
    return {"characters": len, "tokens": lambda text: len(encoding.encode(text))}


async def send(client: Client, project: str) -> None:
    letter = {"project_root": project, **SENDER, "subject": "s", "body": "b"}
    await call(client, "message_create", **letter, target={"strategy": "direct", **RECEIVER})


async def receive(client: Client) -> None:
    pulled = await call(client, "inbox_pull", **RECEIVER)
    await call(client, "inbox_ack", **RECEIVER, message_ids=[message["message_id"] for message in pulled["messages"]])


async def hand_over(client: Client, other: Client, project: str) -> None:
    """Create a handoff; the other one claims and completes it."""
    offer = {"project_root": project, **SENDER, "visibility": "public", "payload": "work"}
    made = await call(client, "handoff_create", **offer, target={"strategy": "broadcast"})
    of = {"project_root": project, "handoff_id": made["handoff_id"], **RECEIVER}
    await call(other, "handoff_claim", **of)
    await call(other, "handoff_complete", **of, result="done")


async def wake(calls: StdioCalls, sender: Client, waiter: Client, project: str, log: dict[str, Any]) -> None:
    """From the sender's call to the answer of a wait in another process; and from the sender's own answer, which comes
    after the commit."""
    cursor = (await call(waiter, "event_cursor", **log))["cursor"]

    async def woken() -> float:
        assert (await call(waiter, "event_wait", **log, cursor=cursor, timeout_seconds=20))["events"]
        return time.perf_counter()

    waiting = asyncio.create_task(woken())
    await asyncio.sleep(0.1)  # it is parked by then
    started = time.perf_counter()
    await send(sender, project)
    sent = time.perf_counter()
    ended = await waiting
    calls.note("wake in another process", ended - started)
    calls.note("wake in another process, after the send's answer", ended - sent)


def write_rows(store: sqlite3.Connection) -> None:
    """The least that a durable write costs on this disk: three rows in one transaction of SQLite."""
    store.execute("BEGIN IMMEDIATE")
    for _ in range(3):
        store.execute("INSERT INTO rows (text) VALUES (?)", ["x" * 200])
    store.execute("COMMIT")


BENCHMARK = Benchmark(
    "stdio",
    __doc__,
    measure,
    {
        "--calls": amount(400, "of each kind"),
        "--first-turn": {"action": "store_true", "help": "count what an agent's first turn takes, and nothing else"},
    },
    quick={"calls": 30},
)
if __name__ == "__main__":
    BENCHMARK.main()
