"""The demo's output: the event log as it grows, and the summary at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from nexus_site.demo.agent import Agent
from nexus_site.demo.team import PLANNER, REVIEWER, WORKERS

COLOURS = {PLANNER: 35, WORKERS[0]: 36, WORKERS[1]: 33, REVIEWER: 32}  # of the terminal
SILENT = {"session.heartbeat"}
STREAMS = ("workspace", "handoff")


class Lines:
    """Lines with the time since the first, in the colour of the actor."""

    def __init__(self, write: Callable[[str], object], *, colour: bool) -> None:
        self._write, self._colour = write, colour
        self._started: float | None = None

    def tell(self, actor: str, what: str) -> None:
        """Print who did what."""
        self.say(actor, f"{actor:<14}", f" {what}")

    def say(self, actor: str, coloured: str, rest: str = "") -> None:
        """Print one line, of which a part has the actor's colour."""
        moment = time.monotonic()
        self._started = self._started or moment
        if self._colour:
            coloured = f"\033[{COLOURS.get(actor, 37)}m{coloured}\033[0m"
        self._write(f"{moment - self._started:6.2f} s  {coloured}{rest}")


class Timeline:
    """Follows both streams of the log over MCP, as any viewer would."""

    def __init__(self, viewer: Agent, tell: Callable[[str, str], None]) -> None:
        self.viewer, self.tell = viewer, tell
        self.claims: dict[str, list[str]] = {}
        self.cursors: dict[str, int] = {}  # by stream, the position from which it is followed

    async def begin(self) -> None:
        """Set the cursors, so that nothing is missed however late `follow` starts."""
        for stream in STREAMS:
            self.cursors[stream] = (await self.viewer.call("event_cursor", **self._where(stream)))["cursor"]

    async def follow(self) -> None:
        """Print events until cancelled."""
        async with asyncio.TaskGroup() as following:
            for stream in STREAMS:
                following.create_task(self._follow(stream))

    def _where(self, stream: str) -> dict[str, str]:
        return {"project_root": self.viewer.project_root, "agent_id": self.viewer.agent_id, "stream": stream}

    async def _follow(self, stream: str) -> None:
        where, cursor = self._where(stream), self.cursors[stream]
        while True:
            page = await self.viewer.call("event_wait", **where, cursor=cursor, timeout_seconds=5)
            for event in page["events"]:
                self._print(event)
            cursor = page["next_cursor"]

    def _print(self, event: dict[str, Any]) -> None:
        if event["type"] == "handoff.claimed":
            self.claims.setdefault(event["handoff_id"], []).append(event["payload"]["claimed_by"])
        if event["type"] in SILENT:
            return
        self.tell(event["actor_agent_id"] or "-", _sentence(event))


def _sentence(event: dict[str, Any]) -> str:
    payload = event["payload"]
    match event["type"]:
        case "message.created":
            return f"writes to {', '.join(payload['recipients']) or 'nobody'}: {payload['subject']}"
        case "handoff.created":
            return f"offers work {_short(payload)} to whoever can {payload['target'].get('capability', '?')}"
        case "handoff.claimed" | "handoff.completed" | "handoff.rejected" | "handoff.cancelled" as kind:
            return f"{kind.removeprefix('handoff.')} work {_short(payload)}"
        case "artifact.created":
            return f"publishes an artifact of {payload['size_bytes']} bytes"
        case "session.opened":
            return "joins"
        case "session.closed":
            return "leaves"
    return str(event["type"])


def _short(payload: dict[str, Any]) -> str:
    return f"…{payload['handoff_id'][-6:]}"
