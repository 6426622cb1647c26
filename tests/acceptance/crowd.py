"""A crowd in one topic: processes that send and processes that follow, all at once, one of each killed on the way."""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.hub import ROOT
from tests.acceptance.processes import HELLO, READY

TIME_LIMIT_SECONDS = 120  # a bound against hanging, not a figure
LONGEST_LINE = 2**22
Got = list[tuple[int, str]]  # what one that follows received: number and text


def crowd(home: Path, processes: int, messages: int) -> dict[str, Any]:
    """Have `processes` send `messages` each while as many follow.

    Returns how many were `killed`, and every one of the `violations` of what is promised: nothing refused, nothing
    lost, everything received once and in order by each.
    """
    return asyncio.run(_crowd(home, processes, messages))


@dataclass
class Peer:
    """A name in a topic and the stdio process that has it. Killed, it comes back by its token and calls again."""

    home: Path
    name: str
    topic: str = ""
    token: str | None = None
    kill_after: int | None = None  # answers
    kills: int = 0
    answers: int = 0
    errors: list[str] = field(default_factory=list)

    async def start(self) -> None:
        """Start the process, and join where a topic is known."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEXUS_", "DJANGO_"))}
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "nexus_site", "runmcp", "--toolsets", "topics"),
            env={**environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(self.home)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
        )
        await self._write(HELLO, READY)
        await self._read()
        if self.topic:
            proof = {"reclaim_token": self.token} if self.token else {}
            joined = await self._ask("topic_join", {"topic_id": self.topic, "agent_name": self.name, **proof})
            self.token = joined["reclaim_token"]

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a call; where the process was killed meanwhile, to the same call of the one after it."""
        if self.answers == self.kill_after and not self.kills:
            self.kills += 1
            asyncio.get_running_loop().call_later(random.uniform(0, 0.01), self.process.kill)
        try:
            body = await self._ask(tool, arguments)
        except (EOFError, ConnectionError):
            await self.process.wait()
            await self.start()
            return await self.call(tool, **arguments)
        self.answers += 1
        if "error" in body:
            self.errors.append(body["error"]["code"])
        return body

    async def sync(self, **arguments: Any) -> dict[str, Any]:
        return await self.call("sync", topic_id=self.topic, **arguments)

    async def stop(self) -> None:
        """End the process."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _ask(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments}
        await self._write({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        body: dict[str, Any] = (await self._read())["result"]["structuredContent"]
        return body

    async def _write(self, *lines: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.stdin.writelines(json.dumps(line).encode() + b"\n" for line in lines)
        await self.process.stdin.drain()

    async def _read(self) -> dict[str, Any]:
        assert self.process.stdout
        async with asyncio.timeout(TIME_LIMIT_SECONDS):
            line = await self.process.stdout.readline()
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer


async def _crowd(home: Path, processes: int, messages: int) -> dict[str, Any]:
    host = Peer(home, "host")
    await host.start()
    topic = (await host.call("topic_create", name="crowd"))["topic_id"]
    senders = [Peer(home, f"sender-{number}", topic) for number in range(processes)]
    followers = [Peer(home, f"follower-{number}", topic) for number in range(processes)]
    senders[0].kill_after, followers[0].kill_after = messages // 2, 2
    everybody = [*senders, *followers]
    try:
        await asyncio.gather(*(peer.start() for peer in everybody))
        following = [asyncio.create_task(_follow(peer, processes * messages)) for peer in followers]
        await asyncio.gather(*(_send(peer, messages) for peer in senders))
        received = dict(zip([peer.name for peer in followers], await asyncio.gather(*following), strict=True))
    finally:
        await asyncio.gather(*(peer.stop() for peer in (host, *everybody)))
    refused = [f"{peer.name} was refused: {code}" for peer in everybody for code in peer.errors]
    return {
        "killed": sum(peer.kills for peer in everybody),
        "violations": refused + violations(received, [peer.name for peer in senders], messages),
    }


async def _send(peer: Peer, messages: int) -> None:
    """One message a call; a call that is made again sends no second one."""
    for number in range(messages):
        message = {"content_markdown": f"{peer.name} {number}", "client_message_id": f"{number}"}
        await peer.sync(outbox=[message], wait_seconds=0, auto_advance=False)


async def _follow(peer: Peer, messages: int) -> Got:
    """Everything in the topic. Who is killed says itself how far it is, since an answer may be lost with it."""
    got: Got = []
    while len(got) < messages:
        far = {} if peer.kill_after is None else {"auto_advance": False, "ack_through": got[-1][0] if got else 0}
        answer = await peer.sync(wait_seconds=30, **far)
        if not answer.get("received"):
            break  # what is missing is told by the violations
        got += [(message["seq"], message["content_markdown"]) for message in answer["received"]]
    return got


def violations(received: dict[str, Got], senders: list[str], messages: int) -> list[str]:
    """What was not received once and in order, by each that follows."""
    found = []
    expected = {f"{sender} {number}" for sender in senders for number in range(messages)}
    for name, got in received.items():
        texts = Counter(text for _, text in got)
        found += [f"{name} never got {text!r}" for text in sorted(expected - texts.keys())]
        found += [f"{name} got {text!r} {times} times" for text, times in texts.items() if times > 1]
        found += [f"{name} got {text!r}, which nobody sent" for text in sorted(texts.keys() - expected)]
        if [seq for seq, _ in got] != list(range(1, len(got) + 1)):
            found.append(f"{name} got them with gaps or out of order")
        for sender in senders:
            numbers = [int(text.split()[1]) for _, text in got if text.startswith(f"{sender} ")]
            if numbers != sorted(numbers):
                found.append(f"{name} got those of {sender} out of order")
    return found
