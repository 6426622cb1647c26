"""The agents of the soak, and the ledger of the answers they got: only answered calls count."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any

from mcp.client.client import Client

PAUSE_SECONDS = 0.5  # the longest between two steps of an agent
LEASE_SECONDS = 60
CALL_SECONDS = 30  # a call without an answer for so long is given up
EXPECTED = {
    "handoff_claim": {"HANDOFF_ALREADY_CLAIMED"},  # another one was quicker
    "handoff_complete": {"NOT_OWNER", "INVALID_TRANSITION"},  # the clock moved past the lease
}


@dataclass
class Ledger:
    """The answers that clients got, and the errors they met."""

    calls: int = 0
    sent: dict[str, set[str]] = field(default_factory=dict)  # recipients of each message
    received: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # message ids by agent
    acknowledged: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # message ids by agent
    won: list[tuple[str, str]] = field(default_factory=list)  # handoff and winner
    completed: Counter[str] = field(default_factory=Counter)  # handoffs
    followed: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # event ids by agent
    refused: Counter[str] = field(default_factory=Counter)  # calls by error code
    cut: Counter[str] = field(default_factory=Counter)  # connections lost, by what the client saw
    violations: list[str] = field(default_factory=list)
    disk_is_full: bool = False

    @property
    def has_each_work(self) -> bool:
        """Whether a message was sent and one acknowledged, a handoff completed, and an event followed."""
        received = any(self.acknowledged.values()) and any(self.followed.values())
        return received and bool(self.sent) and self.completed.total() > 0


class Agent:
    """One agent: connects, works, and connects again whenever its server is gone."""

    def __init__(
        self,
        agent_id: str,
        peers: list[str],
        project: str,
        connect: Callable[[], AbstractAsyncContextManager[Client]],
        ledger: Ledger,
    ) -> None:
        self.agent_id, self.peers, self.project, self.ledger = agent_id, peers, project, ledger
        self.connect = connect
        self.cursor = 0

    async def live(self, stop: asyncio.Event) -> None:
        """Work until `stop`."""
        while not stop.is_set():
            try:
                async with self.connect() as client:
                    self.client = client
                    await self.greet()
                    while not stop.is_set():
                        await random.choice(self.STEPS)(self)
                        await asyncio.sleep(random.uniform(0, PAUSE_SECONDS))
            except Exception as error:  # its server was killed, or the hub is down
                self.ledger.cut[_innermost(error)] += 1
                await asyncio.sleep(random.uniform(0.1, 0.5))

    async def greet(self) -> None:
        workspace = await self.call("workspace_resolve", project_root=self.project)
        if workspace:
            await self.call("session_open", agent_id=self.agent_id, workspace_id=workspace["workspace_id"])

    async def send(self) -> None:
        """A message to one other agent, now and then to all."""
        target = {"strategy": "direct", "agent_id": random.choice(self.peers)}
        sent = await self.call(
            "message_create",
            project_root=self.project,
            from_agent_id=self.agent_id,
            subject="News",
            body="b" * random.randint(1, 2000),
            target=target if random.random() < 0.95 else {"strategy": "broadcast"},
        )
        if sent:
            self.ledger.sent[sent["message_id"]] = set(sent["recipients"])

    async def receive(self) -> None:
        pulled = await self.call("inbox_pull", agent_id=self.agent_id, lease_seconds=LEASE_SECONDS)
        ids = [message["message_id"] for message in (pulled or {}).get("messages", ())]
        self.ledger.received[self.agent_id].update(ids)
        if ids and await self.call("inbox_ack", agent_id=self.agent_id, message_ids=ids):
            self.ledger.acknowledged[self.agent_id].update(ids)

    async def offer(self) -> None:
        work = {"from_agent_id": self.agent_id, "target": {"strategy": "broadcast"}, "payload": "work"}
        await self.call("handoff_create", project_root=self.project, visibility="public", **work)

    async def take(self) -> None:
        """Race for a handoff, and finish it when it was won."""
        me: dict[str, Any] = {"project_root": self.project, "agent_id": self.agent_id}
        page = await self.call("handoff_list_available", **me, limit=5, timeout_seconds=1)
        for offered in (page or {}).get("handoffs", ())[:1]:  # the oldest, as everybody does
            of = {**me, "handoff_id": offered["handoff_id"]}
            if await self.call("handoff_claim", **of):
                self.ledger.won.append((offered["handoff_id"], self.agent_id))
                if await self.call("handoff_complete", **of, result="done"):
                    self.ledger.completed[offered["handoff_id"]] += 1

    async def follow(self) -> None:
        """Read on in the log of handoffs, which everybody sees whole."""
        mine = {"project_root": self.project, "agent_id": self.agent_id, "stream": "handoff"}
        page = await self.call("event_wait", **mine, cursor=self.cursor, timeout_seconds=1)
        if page:
            self.ledger.followed[self.agent_id] += [event["event_id"] for event in page["events"]]
            self.cursor = page["next_cursor"]

    STEPS: Sequence[Callable[[Any], Awaitable[None]]] = (send, send, send, receive, receive, offer, take, take, follow)

    async def call(self, name: str, **arguments: Any) -> dict[str, Any] | None:
        """A tool's data; None when it was refused, which must be for a reason. Busy is tried again."""
        error: dict[str, Any] = {}
        for _ in range(20):
            answer = await self.client.call_tool(name, arguments, read_timeout_seconds=CALL_SECONDS)
            envelope = answer.structured_content
            self.ledger.calls += 1
            if envelope["ok"]:
                data: dict[str, Any] = envelope["data"]
                return data
            error = envelope["error"]
            details = error.get("details", {})
            self.ledger.refused[f"{error['code']} {details.get('cause', '')}".strip()] += 1
            if not details.get("retryable"):
                break
            await asyncio.sleep(0.5)
        disk = self.ledger.disk_is_full and error.get("details", {}).get("cause") == "disk_full"
        if not disk and error["code"] not in EXPECTED.get(name, ()):
            self.ledger.violations.append(f"{name} was refused: {error}")
        return None


def _innermost(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__
