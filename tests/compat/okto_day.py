"""A day of okto-nexus, played by the published package: run it with the Python that has the package.

`okto_day.py HOME PROJECT MESSAGES` prints, as JSON, the agents' keys and what each of them sees at the end.
`okto_day.py HOME` makes the calls that it reads as JSON over a store that is there, and prints every answer, and the
tools with their parameters.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

MADE = "2026-01-01T00:00:00.000000Z"
AGENTS: dict[str, dict[str, Any]] = {
    "ann": {"role": "lead", "capabilities": ["plan"]},
    "bob": {"role": "worker", "capabilities": ["python", "tests"], "metadata": {"model": "x"}},
    "cy": {"role": "worker", "capabilities": ["python"]},
}
PERMISSIONS = {
    "messages": {"send_broadcast": False, "send_channel": False},
    "handoffs": {"create": False},
    "limits": {"messages_per_minute": 30},
}
HANDOFFS = ("open", "claimed", "done", "refused", "withdrawn", "verified", "waiting")


class Bus:
    """The tools of the package over a store."""

    def __init__(self, home: str) -> None:
        from okto_nexus.adapters.inbound.mcp.server import bootstrap, create_server

        features = {f"OKTO_NEXUS_FEATURE_{name}": "true" for name in ("TRACE", "VERIFICATION", "DAG", "HEALTH")}
        self.deps = bootstrap({"OKTO_NEXUS_HOME": home, **features}, [])
        self.server = create_server(self.deps)
        self.app: Any = None

    async def answer(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Call a tool, or ask for a path below /api/v1 with `GET /…`."""
        if tool.startswith("GET "):
            return await self.get(tool.removeprefix("GET "), arguments)
        answer = await self.server.call_tool(tool, arguments)
        return json.loads((answer[0] if isinstance(answer, tuple) else answer)[0].text)

    async def get(self, path: str, query: dict[str, Any]) -> Any:
        import httpx
        from okto_nexus.adapters.inbound.http.app import build_app

        self.app = self.app or build_app(self.deps)
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8202") as client:
            return (await client.get(f"/api/v1{path}", params=query)).json()

    async def call(self, tool: str, **arguments: Any) -> Any:
        envelope = await self.answer(tool, arguments)
        assert envelope["ok"], (tool, arguments, envelope)
        return envelope["data"]

    async def events(self, project: str, name: str, stream: str) -> list[Any]:
        page = await self.call("event_get", project_root=project, agent_id=name, stream=stream, limit=1000)
        return list(page["events"])

    def write(self, statement: str, *values: Any) -> None:
        """Write what an operator sets on the package's pages."""
        with self.deps.connection_factory.unit_of_work() as uow:
            uow.connection.execute(statement, values)

    def has(self, column: str) -> bool:
        with self.deps.connection_factory.unit_of_work(write=False) as uow:
            return bool(
                uow.connection.execute("SELECT 1 FROM pragma_table_info('agents') WHERE name = ?", (column,)).fetchone()
            )


async def play(home: str, project: str, messages: int) -> dict[str, Any]:
    """Let three agents work, and return their keys and what each of them sees at the end."""
    from okto_nexus.domain.keys import generate_api_key, hash_api_key

    bus = Bus(home)
    newer = bus.has("tags")
    keys, sessions = {name: generate_api_key() for name in AGENTS}, {}
    workspace = await bus.call("workspace_resolve", project_root=project)
    for name, profile in AGENTS.items():
        for capability in profile["capabilities"] if newer else ():
            bus.write("INSERT OR IGNORE INTO capability_names VALUES (?, NULL, ?)", capability, MADE)
        await bus.call("agent_register", agent_id=name, **profile)
        bus.write("UPDATE agents SET api_key_hash = ? WHERE agent_id = ?", hash_api_key(keys[name]), name)
        sessions[name] = await bus.call("session_open", agent_id=name, workspace_id=workspace["workspace_id"])
    bus.write("INSERT INTO settings VALUES ('inbox_lease_ttl_seconds', '120', ?)", MADE)
    bus.write("INSERT INTO settings VALUES ('inbox_read_receipts', 'false', ?)", MADE)
    trace: dict[str, Any] = {}
    if newer:
        trace = {"trace_id": "trace-1"}
        bus.write("INSERT INTO tag_keys VALUES ('team', 'The team.', ?)", MADE)
        bus.write("INSERT INTO tag_values VALUES ('team', 'core', NULL, ?)", MADE)
        bus.write("UPDATE agents SET tags = ? WHERE agent_id = 'bob'", json.dumps({"team": ["core"]}))
    await _talk(bus, project, messages, trace)
    handoffs = await _hand_over(bus, project, trace)
    bus.write("UPDATE agents SET permissions = ? WHERE agent_id = 'cy'", json.dumps(PERMISSIONS))
    return {"keys": keys, "sessions": sessions, "handoffs": handoffs, "seen": await see(bus, project)}


async def _talk(bus: Bus, project: str, messages: int, trace: dict[str, Any]) -> None:
    channel = await bus.call("channel_create", project_root=project, name="reviews")
    plan = await bus.call(
        "artifact_put", project_root=project, artifact_type="markdown", content="# Plan\n\nä", name="plan.md"
    )
    Path(project, "out.txt").write_text("built\n")
    await bus.call("artifact_put", project_root=project, artifact_type="file", path="out.txt", name="out")
    first = await bus.call(
        "message_create", project_root=project, from_agent_id="ann", subject="Hello", body="Read the plan.",
        channel_id=channel["channel"]["channel_id"], artifacts=[plan["artifact_id"]], **trace,
    )  # fmt: skip
    await bus.call(
        "message_create", project_root=project, from_agent_id="bob", subject="Re: Hello", body="Done.",
        parent_message_id=first["message_id"], target={"strategy": "direct", "agent_id": "ann"},
    )  # fmt: skip
    for number in range(messages):
        sender = list(AGENTS)[number % 3]
        others = [name for name in AGENTS if name != sender]
        await bus.call(
            "message_create", project_root=project, from_agent_id=sender, subject=f"No. {number}",
            body=f"Body {number}", target={"strategy": "direct", "agent_id": others[number // 3 % 2]},
        )  # fmt: skip
    for name in AGENTS:
        pulled = await bus.call("inbox_pull", agent_id=name, limit=3)
        ids = [message["message_id"] for message in pulled["messages"]]
        await bus.call("inbox_ack", agent_id=name, message_ids=ids[:2])


async def _hand_over(bus: Bus, project: str, trace: dict[str, Any]) -> dict[str, str]:
    made: dict[str, str] = {}
    for title in HANDOFFS:
        extra = dict(trace)
        if trace and title == "verified":
            extra |= {"acceptance_criteria": ["Tests pass."], "verify_by": {"kind": "creator"}}
        if trace and title == "waiting":
            extra |= {"depends_on": [made["claimed"]]}
        answer = await bus.call(
            "handoff_create", project_root=project, from_agent_id="ann", visibility="public", payload={"title": title},
            target={"strategy": "capability", "capability": ["python"]}, **extra,
        )  # fmt: skip
        made[title] = answer["handoff_id"]
    for title in ("claimed", "done", "refused", "verified"):
        await bus.call("handoff_claim", project_root=project, handoff_id=made[title], agent_id="bob")
    for title in ("done", "verified"):
        await bus.call(
            "handoff_complete", project_root=project, handoff_id=made[title], agent_id="bob", result="All done."
        )
    await bus.call("handoff_reject", project_root=project, handoff_id=made["refused"], agent_id="bob", reason="No.")
    await bus.call("handoff_cancel", project_root=project, handoff_id=made["withdrawn"], agent_id="ann")
    return made


async def see(bus: Bus, project: str) -> dict[str, Any]:
    """Return each agent's inbox, history, open handoffs and events, a page each."""
    return {
        name: {
            "inbox": await bus.call("inbox_peek", agent_id=name, limit=100),
            "history": await bus.call("inbox_history", agent_id=name, limit=100),
            "open": await bus.call("handoff_list_available", project_root=project, agent_id=name),
            "events": [
                event
                for stream in ("workspace", "handoff")
                for event in await bus.events(project, name, stream)
            ],
        }
        for name in AGENTS
    }  # fmt: skip


def filled(value: Any, answers: list[Any]) -> Any:
    """Return arguments with what an earlier call answered in the place of `["$", call, field, …]`; the field `*` stands
    for each of a list."""
    if isinstance(value, dict):
        return {name: filled(each, answers) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    if value[:1] != ["$"]:
        return [filled(each, answers) for each in value]
    return _at(answers[value[1]]["data"], value[2:])


def _at(found: Any, steps: list[Any]) -> Any:
    if not steps:
        return found
    step, *rest = steps
    return [_at(each, rest) for each in found] if step == "*" else _at(found[step], rest)


async def repeat(home: str, calls: list[Any]) -> dict[str, Any]:
    """Make calls; return their answers, and the parameters of every tool."""
    bus, answers = Bus(home), list[Any]()
    for tool, arguments in calls:
        answers.append(await bus.answer(tool, filled(arguments, answers)))
    tools = {tool.name: sorted(tool.inputSchema.get("properties", {})) for tool in await bus.server.list_tools()}
    return {"answers": answers, "tools": tools}


if __name__ == "__main__" and len(sys.argv) == 2:
    print(json.dumps(asyncio.run(repeat(sys.argv[1], json.load(sys.stdin)))))
elif __name__ == "__main__":
    print(json.dumps(asyncio.run(play(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
