"""A team at work on one hub over MCP: each agent waits for mail, sends messages, and pulls and acknowledges its own.

python -m benchmarks.team                      # from 20 agents at 1 message a second to 1,000 that are mostly idle
python -m benchmarks.team --team 300x0.15 --way subscription --seconds 30
python -m benchmarks.team --waiters 20 --waiters 100 --waiters 300  # does a message cost more with who waits?
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.harness import Benchmark, Figures, Server, amount, key, raise_file_limit, running, spread

PROTOCOL = "2025-06-18"
WAIT_SECONDS = 25
# a call that waits for events; one that acknowledges, waits and pulls; a stream that tells of a changed inbox
WAYS = ("event_wait", "inbox_pull", "subscription")
WARM_SECONDS = 3  # once all send; behind which is measured
RENEWED_SECONDS = WAIT_SECONDS + WARM_SECONDS  # likewise, with waits: those that end then began at rest
AT_REST, LOOKS = 0.2, 20  # share of a core that a hub uses at most once all waits have arrived; seconds to wait for it
TEAMS = ["20x1", "100x0.5", "300x0.15", "100x1", "1000x0.005"]
PAIR = 2  # agents beside whom others only wait
PAIRS_RATE = 5.0  # messages a second of each of the two
AT_ONCE = 32  # handshakes
IDLE_SECONDS = 600  # how long each call waits of who only waits: to wait anew costs, too, and is not asked here


async def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """A column for each team and way of waiting; in ms, unless it says otherwise."""
    teams, waiters = options.team or [], options.waiters or []
    if not teams and not waiters:
        teams = TEAMS
    raise_file_limit()
    figures = {}
    for way in options.way or WAYS:
        for team in teams:
            agents, _, rate = team.partition("x")
            name = f"{team} {way}"
            figures[name] = await play(scratch / name, int(agents), float(rate), options.seconds, way)
        for count in waiters:
            name = f"{count} wait {way}"
            figures[name] = await play(scratch / name, PAIR, PAIRS_RATE, options.seconds, way, count)
    return figures


async def play(scratch: Path, agents: int, rate: float, seconds: float, way: str, waiters: int = 0) -> dict[str, float]:
    """The figures of one team, beside `waiters` more: times in ms, messages a second, the hub's CPU a message."""
    project = scratch / "project"
    project.mkdir(parents=True)
    with running(scratch / "home") as hub:
        async with httpx.AsyncClient(base_url=hub.url, timeout=120) as operator:
            keys = [await key(operator, f"agent-{number}") for number in range(agents + waiters)]
        everybody = [Agent(hub, f"agent-{number}", each, str(project)) for number, each in enumerate(keys)]
        team, idle = everybody[:agents], everybody[agents:]
        turn = asyncio.Semaphore(AT_ONCE)
        await asyncio.gather(*(agent.begin(turn) for agent in everybody))
        jobs = [agent.listen(way, WAIT_SECONDS) for agent in team]
        jobs += [agent.listen(way, IDLE_SECONDS) for agent in idle]
        work = [asyncio.create_task(job) for job in jobs]
        await asyncio.gather(*(agent.waits.wait() for agent in everybody))
        await at_rest(hub)
        connected = time.monotonic()
        work += [asyncio.create_task(agent.send(team, rate)) for agent in team]
        await asyncio.sleep(WARM_SECONDS if way == "subscription" else RENEWED_SECONDS)
        before, started = hub.cpu_seconds(), time.monotonic()
        for agent in everybody:
            agent.sent.clear()
            agent.pulled.clear()
            agent.longest, agent.counts_from = 0.0, connected
        await asyncio.sleep(seconds)
        cpu, lasted = hub.cpu_seconds() - before, time.monotonic() - started
        sent = list(itertools.chain(*(agent.sent for agent in team)))
        pulled = list(itertools.chain(*(agent.pulled for agent in team)))
        for task in work:
            task.cancel()
        for failed in await asyncio.gather(*work, return_exceptions=True):
            if not isinstance(failed, asyncio.CancelledError):
                raise failed or RuntimeError("an agent stopped")
    figures = {"messages a second": len(sent) / lasted, "asked for": agents * rate}
    figures |= {f"send {name}": value for name, value in spread(sent).items()}
    figures |= {f"to pulled {name}": value for name, value in spread(pulled).items()}
    figures["longest call of any kind"] = max(agent.longest for agent in everybody) * 1000
    figures["hub's CPU a message"] = cpu / max(len(sent), 1) * 1000
    return figures


async def at_rest(hub: Server) -> None:
    """Return once the waits of all agents have arrived, or after a while: none of them is answered yet."""
    for _ in range(LOOKS):
        before = hub.cpu_seconds()
        await asyncio.sleep(1)
        if hub.cpu_seconds() - before < AT_REST:
            return


class Agent:
    """One agent and its session; `sent` and `pulled` are times in s, of a send and from a send to its pull.

    `longest` is that of its longest call in s which began after `counts_from`, where one that waits counts by how much
    later than asked it ends.
    """

    def __init__(self, hub: Server, name: str, secret: str, project: str) -> None:
        self.name, self.project = name, project
        self.sent: list[float] = []
        self.pulled: list[float] = []
        self.longest = self.counts_from = 0.0
        self.waits = asyncio.Event()
        self._address = urlsplit(hub.url)
        self._secret = secret
        self._session = ""
        self.numbers = itertools.count(1)  # of requests: each has one of its own in the session

    async def begin(self, turn: asyncio.Semaphore) -> None:
        """The handshake, when it is its turn."""
        client = Connection(self)
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": {"name": "team", "version": "1"}}
        async with turn:
            await client.post("initialize", hello)
            self._session = client.session
            await client.post("notifications/initialized", None)

    async def listen(self, way: str, seconds: int) -> None:
        """Take mail as it comes; calls that wait do so for `seconds`."""
        if way == "event_wait":
            await self.wait(seconds)
        elif way == "inbox_pull":
            await self.receive(seconds)
        else:
            await self.follow()

    async def receive(self, seconds: int) -> None:
        """Acknowledge, wait and pull with one call, as `wait` does with four."""
        client, handled, length = Connection(self), list[str](), random.randint(1, seconds)
        self.waits.set()
        while True:
            handled = await self._pull(client, length, wait_seconds=length, ack_message_ids=handled)
            length = seconds

    async def wait(self, seconds: int) -> None:
        """Wait for events, so long with each call but the first, and take the mail that they tell of.

        The first one's length is random: agents that began in the same second do not wait anew in the same one.
        """
        client = Connection(self)
        here = {"project_root": self.project, "agent_id": self.name, "stream": "workspace"}
        cursor = (await client.call("event_cursor", here))["cursor"]
        self.waits.set()
        length = random.randint(1, seconds)
        while True:
            asked = {**here, "cursor": cursor, "timeout_seconds": length}
            page = await client.call("event_wait", asked, length)
            cursor, length = page["next_cursor"], seconds
            if any(event["actor_agent_id"] != self.name for event in page["events"]):
                await self._take(client)

    async def follow(self) -> None:
        """Subscribe to the inbox, and take the mail that the session's stream tells of."""
        client = Connection(self)
        reader, writer = await self.opened()
        writer.write(self.head("GET"))
        await reader.readuntil(b"\r\n\r\n")
        await client.post("resources/subscribe", {"uri": f"nexus://inbox/{self.name}"})
        await self._take(client)  # what came before the subscription
        self.waits.set()
        while line := await reader.readline():
            if b"notifications/resources/updated" in line:
                await self._take(client)

    async def _take(self, client: Connection) -> None:
        if taken := await self._pull(client):
            await client.call("inbox_ack", {"agent_id": self.name, "message_ids": taken})

    async def _pull(self, client: Connection, waits: float = 0, **arguments: Any) -> list[str]:
        """Pull the mail, note how long each message took, and return their ids."""
        mail = (await client.call("inbox_pull", {"agent_id": self.name, **arguments}, waits))["messages"]
        self.pulled += [time.monotonic() - float(message["body"]) for message in mail]
        return [message["message_id"] for message in mail]

    async def send(self, team: list[Agent], rate: float) -> None:
        """Send to somebody of the team at that rate."""
        client, others = Connection(self), [agent.name for agent in team if agent is not self]
        await asyncio.sleep(random.uniform(0, 1 / rate))
        for number in itertools.count(1):
            started = time.monotonic()
            target = {"strategy": "direct", "agent_id": random.choice(others)}
            letter = {"from_agent_id": self.name, "subject": str(number), "body": str(started), "target": target}
            await client.call("message_create", {"project_root": self.project, **letter})
            self.sent.append(time.monotonic() - started)
            await asyncio.sleep(max(0, started + 1 / rate - time.monotonic()))

    def head(self, method: str, length: int = 0) -> bytes:
        """The head of a request."""
        session = f"Mcp-Session-Id: {self._session}\r\n" if self._session else ""
        body = f"Content-Type: application/json\r\nContent-Length: {length}\r\n" if length else ""
        return (
            f"{method} /mcp HTTP/1.1\r\nHost: {self._address.netloc}\r\nAuthorization: Bearer {self._secret}\r\n"
            f"{session}Mcp-Protocol-Version: {PROTOCOL}\r\n{body}Accept: application/json, text/event-stream\r\n\r\n"
        ).encode()

    async def opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the hub."""
        return await asyncio.open_connection(self._address.hostname, self._address.port)


class Connection:
    """A connection of an agent: the smallest client there is, so that the hub is what is measured."""

    def __init__(self, agent: Agent) -> None:
        self.session = ""
        self._agent = agent
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, tool: str, arguments: dict[str, Any], waits: float = 0) -> Any:
        """A tool's data; it may wait for so many seconds."""
        started = time.monotonic()
        answer = await self.post("tools/call", {"name": tool, "arguments": arguments})
        if started > self._agent.counts_from:
            self._agent.longest = max(self._agent.longest, time.monotonic() - started - waits)
        envelope = answer["result"]["structuredContent"]
        assert envelope["ok"], envelope
        return envelope["data"]

    async def post(self, method: str, params: Any) -> Any:
        """The answer to a request; None to a notification, which has no `params`."""
        request: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            request |= {"id": next(self._agent.numbers), "params": params}
        body = json.dumps(request).encode()
        if self._streams is None:
            self._streams = await self._agent.opened()
        reader, writer = self._streams
        writer.write(self._agent.head("POST", len(body)) + body)
        length = 0
        while line := (await reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            if name.lower() == "content-length":
                length = int(value)
            elif name.lower() == "mcp-session-id":
                self.session = value.strip()
        text = await reader.readexactly(length)
        return json.loads(text) if params is not None else None


BENCHMARK = Benchmark(
    "team",
    __doc__,
    measure,
    {
        "--team": {"action": "append", "help": "agents x messages a second of each; may be given again"},
        "--waiters": {"type": int, "action": "append", "help": "agents that only wait, beside two that send"},
        "--way": {"choices": WAYS, "action": "append", "help": "how agents wait (default: each in turn)"},
        "--seconds": amount(20.0, "measured"),
    },
    quick={"team": ["5x1"], "waiters": [5], "seconds": 2},
)
if __name__ == "__main__":
    BENCHMARK.main()
