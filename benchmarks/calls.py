"""The hub's CPU a call, beside that of the bare SDK with a tool that does nothing, served by the same server."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from mcp_types import CLIENT_CAPABILITIES_META_KEY, PROTOCOL_VERSION_META_KEY

from benchmarks.harness import NOOP, Benchmark, Figures, Server, amount, key, running

YARDSTICK = "no-op, bare SDK"
TOOLS = {  # of the hub, by what they measure
    "no such tool": ("noop", {}),
    "inbox_count": ("inbox_count", {"agent_id": "agent"}),
}
HANDSHAKE, CURRENT = "2025-06-18", "2026-07-28"  # the protocol with sessions, and the one where each request is alone
LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
CONNECTIONS = 4  # each with one call at a time
ROUNDS = 5


async def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """The CPU of each kind of call in ms, all threads of its server, and its ratio to the yardstick's."""
    calls = options.calls
    with running(scratch, NOOP) as bare, running(scratch / "home") as hub:
        async with httpx.AsyncClient(base_url=hub.url, timeout=60) as operator:
            secret = {"x-api-key": await key(operator, "agent")}
        kinds: dict[str, Kind] = {}
        for protocol in (HANDSHAKE, CURRENT):
            kinds[f"{YARDSTICK}, {protocol}"] = await over_mcp(bare, protocol, {}, "noop", {})
            for what, (tool, arguments) in TOOLS.items():
                kinds[f"{what}, {protocol}"] = await over_mcp(hub, protocol, secret, tool, arguments)
        tool, arguments = TOOLS["inbox_count"]
        over_rest = _request(hub, f"/api/v1/operations/{tool}", secret, arguments)
        kinds["inbox_count, REST"] = Kind(hub, [over_rest] * CONNECTIONS)
        for kind in kinds.values():
            await kind.play(calls // 10)  # warms up
            kind.spent = 0.0
        for _ in range(ROUNDS):
            for kind in kinds.values():
                await kind.play(calls // ROUNDS)
    cpu = {what: kind.spent / calls * 1000 for what, kind in kinds.items()}
    of = {what: CURRENT if what.endswith(CURRENT) else HANDSHAKE for what in cpu}  # the protocol of its yardstick
    to_sdk = {what: value / cpu[f"{YARDSTICK}, {of[what]}"] for what, value in cpu.items()}
    return {"CPU ms": cpu, "to the SDK": to_sdk}


@dataclass
class Kind:
    """A call that is made again and again; `spent` is the CPU that its server used, in s."""

    server: Server
    requests: list[bytes]  # one for each connection
    spent: float = 0.0

    async def play(self, calls: int) -> None:
        """Make so many calls over a few connections, each with one at a time."""
        before = self.server.cpu_seconds()
        await asyncio.gather(*(self._play(each, calls // len(self.requests)) for each in self.requests))
        self.spent += self.server.cpu_seconds() - before

    async def _play(self, request: bytes, calls: int) -> None:
        address = urlsplit(self.server.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        for _ in range(calls):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readexactly(int(LENGTH.search(head)[1]))  # type: ignore[index]  # both servers send it
        writer.close()


async def over_mcp(server: Server, protocol: str, secret: dict[str, str], tool: str, arguments: dict[str, Any]) -> Kind:
    """A call of a tool, in a session of its own where the protocol has them."""
    headers = {**secret, "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": protocol}
    params: dict[str, Any] = {"name": tool, "arguments": arguments}
    if protocol == HANDSHAKE:
        hello = {"protocolVersion": protocol, "capabilities": {}, "clientInfo": {"name": "calls", "version": "1"}}
        async with httpx.AsyncClient(headers=headers) as client:
            body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
            headers["Mcp-Session-Id"] = (await client.post(f"{server.url}/mcp", json=body)).headers["mcp-session-id"]
            notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            await client.post(f"{server.url}/mcp", json=notification, headers=headers)
    else:
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": tool}
        params["_meta"] = {PROTOCOL_VERSION_META_KEY: protocol, CLIENT_CAPABILITIES_META_KEY: {}}
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": params}
    calls = ({**call, "id": number} for number in range(CONNECTIONS))  # a session takes an id once at a time
    return Kind(server, [_request(server, "/mcp", headers, each) for each in calls])


def _request(server: Server, path: str, headers: dict[str, str], content: Any) -> bytes:
    body = json.dumps(content)
    headers = {
        "Host": urlsplit(server.url).netloc,
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", body]).encode()


BENCHMARK = Benchmark("calls", __doc__, measure, {"--calls": amount(3000, "of each kind")}, quick={"calls": 200})
if __name__ == "__main__":
    BENCHMARK.main()
