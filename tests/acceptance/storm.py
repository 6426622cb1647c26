"""Clients of two hubs and of three machines at work while each kind of process is killed, stopped or hung.

What they were answered is in a ledger; `broken_promises` compares it with the store.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import until
from tests.acceptance.site import HUBS, MACHINES, SERVICES, WORKERS, Site, Trouble, happen
from tests.acceptance.soak import agents as soak
from tests.acceptance.soak.checks import violations
from tests.acceptance.soak.servers import over_http

MEMBERS, SENDERS = 8, 3  # clients with an inbox, and those that send turns
LEASE_SECONDS = 10  # of pulled messages
TRACEBACK = 60  # lines of a log that tell of one
ENDS = ("done", "failed", "interrupted", "cancelled")


@dataclass
class Ledger(soak.Ledger):
    """What clients of the inbox, of handoffs and of the pool were answered."""

    offered: set[str] = field(default_factory=set)  # handoffs
    turns: dict[str, str] = field(default_factory=dict)  # acknowledged: request ids, and how each ended as far as told
    streams: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))  # event ids, by hub


class Rest:
    """The calls of an agent over REST, with the face of the SDK's client."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def call_tool(self, name: str, arguments: dict[str, Any], *, read_timeout_seconds: float) -> Any:
        answer = await self.http.post(
            f"/api/v1/operations/{name}", json=arguments, timeout=read_timeout_seconds + START_SECONDS
        )
        return SimpleNamespace(structured_content=answer.json())


@asynccontextmanager
async def over_rest(site: Site, key: str) -> AsyncIterator[Any]:
    async with httpx.AsyncClient(base_url=site.url(), headers={"x-api-key": key}) as http:
        yield Rest(http)


def over_mcp(site: Site, key: str) -> AbstractAsyncContextManager[Any]:
    return over_http(site.url(), key)


class Member(soak.Agent):
    """An agent of the soak that calls either hub, and whose messages and handoffs each have a `client_id`: it calls
    again with that until it is answered."""

    ledger: Ledger
    CREATES = ("message_create", "handoff_create")
    AGAIN = (*CREATES, "inbox_ack", "inbox_pull", "event_wait", "handoff_list_available", "workspace_resolve")
    EXPECTED = soak.EXPECTED | {"handoff_claim": {"HANDOFF_ALREADY_CLAIMED", "INVALID_TRANSITION"}}

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.unanswered: tuple[str, dict[str, Any]] | None = None
        self.made = 0

    async def call(self, name: str, **arguments: Any) -> dict[str, Any] | None:
        """A tool's data; None if it was refused for a reason, and if nobody can know whether it was done."""
        if name in self.CREATES and "client_id" not in arguments:
            self.made += 1
            arguments["client_id"] = f"{self.agent_id}-{self.made}"
            self.unanswered = name, arguments
        while True:
            answer = await self.client.call_tool(name, arguments, read_timeout_seconds=soak.CALL_SECONDS)
            envelope = answer.structured_content
            self.ledger.calls += 1
            if envelope["ok"]:
                data: dict[str, Any] = envelope["data"]
                if name in self.CREATES:
                    self.unanswered = None
                if name == "handoff_create":
                    self.ledger.offered.add(data["handoff_id"])
                return data
            error = envelope["error"]
            details = error.get("details", {})
            self.ledger.refused[f"{error['code']} {details.get('cause', '')}".strip()] += 1
            in_doubt = details.get("cause") == "commit_in_doubt"
            if not details.get("retryable") and not (in_doubt and name in self.AGAIN):
                if not in_doubt and error["code"] not in self.EXPECTED.get(name, ()):
                    self.ledger.violations.append(f"{name} was refused: {error}")
                return None
            await asyncio.sleep(0.3)

    async def greet(self) -> None:
        """What it was not answered at the connection before comes first."""
        if self.unanswered is not None:
            name, arguments = self.unanswered
            made = await self.call(name, **arguments)
            if name == "message_create" and made:
                self.ledger.sent[made["message_id"]] = set(made["recipients"])

    async def receive(self) -> None:
        pulled = await self.call("inbox_pull", agent_id=self.agent_id, lease_seconds=LEASE_SECONDS)
        ids = [message["message_id"] for message in (pulled or {}).get("messages", ())]
        self.ledger.received[self.agent_id].update(ids)
        if again := self.ledger.acknowledged[self.agent_id].intersection(ids):
            self.ledger.violations.append(f"{self.agent_id} got what it had acknowledged again: {again}")
        if ids and await self.call("inbox_ack", agent_id=self.agent_id, message_ids=ids):
            self.ledger.acknowledged[self.agent_id].update(ids)

    STEPS = (soak.Agent.send, soak.Agent.send, receive, receive, soak.Agent.offer, soak.Agent.take, soak.Agent.follow)

    async def drain(self) -> None:
        """Receive what is left, also once its leases have lapsed."""
        async with self.connect() as self.client:
            await self.greet()
            while True:
                await self.receive()
                count = await self.call("inbox_count", agent_id=self.agent_id)
                if count is not None and count["unread"] == count["in_flight"] == 0:
                    return
                await asyncio.sleep(0.5)


async def operate(site: Site, ledger: Ledger, operation: str, **arguments: Any) -> dict[str, Any]:
    """An operation of the pool over REST, as the operator, at either hub until one answers: its envelope."""
    async with httpx.AsyncClient(timeout=START_SECONDS) as http:
        while True:
            url = f"{site.url()}/api/v1/control/operations/{operation}"
            try:
                envelope: dict[str, Any] = (await http.post(url, json=arguments)).json()
            except httpx.TransportError as error:
                ledger.cut[type(error).__name__] += 1
                await asyncio.sleep(0.2)
                continue
            ledger.calls += 1
            if envelope["ok"]:
                return envelope
            details = envelope["error"].get("details", {})
            ledger.refused[f"{envelope['error']['code']} {details.get('cause', '')}".strip()] += 1
            if not details.get("retryable") and details.get("cause") != "commit_in_doubt":
                return envelope
            await asyncio.sleep(0.3)


async def send_turns(site: Site, ledger: Ledger, number: int, agents: Sequence[str], stop: asyncio.Event) -> None:
    """Turns for one agent after the other, some waited for; each is sent again by its id until it is acknowledged."""
    count = 0
    while not stop.is_set():
        count += 1
        agent, run = random.choice(agents), f"run-{number}-{count}"
        pace, seconds = random.choice(("quick", "slow")), random.choice((0, 10, 10))
        content = f"{pace} {run}"
        envelope = await operate(
            site, ledger, "pool_send", agent_id=agent, content=content, request_id=run, timeout_seconds=seconds
        )
        code = "ok" if envelope["ok"] else envelope["error"]["code"]
        if code == "ok":
            ledger.turns[run] = "done" if "content" in envelope["data"] else ""
        elif code == "TURN_INTERRUPTED":
            ledger.turns[run] = "interrupted"
        elif code != "POOL_FULL":
            ledger.violations.append(f"pool_send was refused: {envelope['error']}")
        await asyncio.sleep(random.uniform(0, 0.5))


async def follow(site: Site, ledger: Ledger, hub: str) -> None:
    """The whole log from one hub, from where the connection before it broke, until cancelled."""
    seen = ledger.streams[hub]
    while True:
        url = f"{site.url(hub)}/api/v1/stream?cursor={seen[-1] if seen else 0}"
        with suppress(httpx.TransportError):
            async with httpx.AsyncClient(timeout=60) as http, http.stream("GET", url) as answer:
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        seen.append(json.loads(line.removeprefix("data: "))["event_id"])
        await asyncio.sleep(0.2)


async def storm(scratch: Path, seconds: float, kinds: Sequence[str], seed: int) -> dict[str, Any]:
    """Let the site work for so long while these kinds of trouble happen; the report, with `violations`."""
    site = Site(scratch)
    ledger, stop, troubles = Ledger(), asyncio.Event(), list[Trouble]()
    await asyncio.to_thread(site.__enter__)
    with closing(site.stack):
        hub = site.hubs[HUBS[0]]
        names = [f"member-{number}" for number in range(MEMBERS)]
        await asyncio.to_thread(hub.call, "agent_register", agent_id="collector")
        keys = {name: await asyncio.to_thread(hub.key, name) for name in names}
        pool = [f"pool-{number}" for number in range(2 * len(MACHINES))]
        for name in (*pool, "at-home"):
            model = "home" if name == "at-home" else "farm"
            made = await operate(site, ledger, "pool_create_agent", agent_id=name, model=model, cwd=site.project)
            assert made["ok"], made
        members = []
        for number, name in enumerate(names):
            connect = partial(over_mcp if number % 2 else over_rest, site, keys[name])
            peers = [peer for peer in names if peer != name]
            members.append(Member(name, peers, site.project, connect, ledger))
        working = [asyncio.create_task(member.live(stop)) for member in members]
        working += [
            asyncio.create_task(send_turns(site, ledger, number, [*pool, "at-home"], stop)) for number in range(SENDERS)
        ]
        following = [asyncio.create_task(follow(site, ledger, name)) for name in HUBS]
        chances = random.Random(seed), random.Random(seed + 1)
        await asyncio.gather(
            *(
                happen(site, [kind for kind in lane if kind in kinds], chance, seconds, troubles)
                for lane, chance in zip((SERVICES, WORKERS), chances, strict=True)
            )
        )
        while not (ledger.has_each_work and ledger.turns):  # a loaded machine may have let them do little so far
            await asyncio.sleep(0.2)
        stop.set()
        await asyncio.gather(*working)
        await asyncio.gather(*(drained(member) for member in members))
        await asyncio.to_thread(until, partial(all_ended, site))
        with site.store() as store:
            newest = store.execute("SELECT max(event_id) FROM events").fetchone()[0]
        await asyncio.to_thread(until, lambda: all(seen and seen[-1] >= newest for seen in ledger.streams.values()))
        for task in following:
            task.cancel()
        found = await asyncio.to_thread(lambda: list(broken_promises(site, ledger, troubles)))
        with site.store() as store:
            turns = dict(store.execute("SELECT status, count(*) FROM pool_turns GROUP BY 1").fetchall())
    return {
        "seconds": seconds,
        "calls": ledger.calls,
        "messages": len(ledger.sent),
        "acknowledged": sum(map(len, ledger.acknowledged.values())),
        "handoffs offered": len(ledger.offered),
        "handoffs won": len(ledger.won),
        "handoffs completed": len(ledger.completed),
        "turns acknowledged": len(ledger.turns),
        "turns": turns,
        "events": newest,
        "troubles": dict(Counter(trouble.kind for trouble in troubles)),
        "refused": dict(ledger.refused),
        "cut": dict(ledger.cut),
        "violations": found,
    }


async def drained(member: Member) -> None:
    while True:
        try:
            return await member.drain()
        except (httpx.TransportError, OSError):
            await asyncio.sleep(0.5)


def all_ended(site: Site) -> bool:
    with site.store() as store:
        return store.execute("SELECT 1 FROM pool_turns WHERE ended_at IS NULL").fetchone() is None


def broken_promises(site: Site, ledger: Ledger, troubles: Sequence[Trouble]) -> Iterator[str]:
    """Each promise that was broken, in a sentence."""
    yield from violations(site, ledger, defaultdict(list))  # type: ignore[arg-type]
    with site.store() as store:
        yield from _undelivered(store, ledger)
        yield from _turns(store, ledger, troubles)
        log = [row[0] for row in store.execute("SELECT event_id FROM events ORDER BY event_id")]
    for hub, seen in ledger.streams.items():
        if seen[: len(log)] != log[: len(seen)]:
            missed, twice = set(log) - set(seen), len(seen) - len(set(seen))
            yield f"a follower at {hub} missed {len(missed)} events, saw {twice} twice, and some out of order"
    logs = [*site.lines, *(line for hub in site.hubs.values() for line in hub.lines)]
    for name in MACHINES:
        logs += (site.scratch / name / "log").read_text().splitlines()
    for number, line in enumerate(logs):
        if "Traceback" in line or "INTERNAL_ERROR" in line:
            yield "\n".join(["in a log:", *logs[number : number + TRACEBACK]])


def _undelivered(store: Any, ledger: Ledger) -> Iterator[str]:
    """Every message was acknowledged by each recipient; each message and handoff was stored once for its call."""
    rows = store.execute("SELECT message_id, recipient_agent_id, status FROM message_deliveries").fetchall()
    status = {(message, recipient): lane for message, recipient, lane in rows}
    for message, recipients in ledger.sent.items():
        for recipient in recipients:
            if status.get((message, recipient)) != "read" or message not in ledger.received[recipient]:
                yield f"message {message} to {recipient} is {status.get((message, recipient))}"
    stored = store.execute(
        "SELECT count(*) FROM messages WHERE from_agent_id LIKE 'member-%' AND client_id IS NOT NULL"
    )
    if (count := stored.fetchone()[0]) != len(ledger.sent):
        yield f"{len(ledger.sent)} messages were acknowledged, and {count} are stored"
    offered = {row[0] for row in store.execute("SELECT handoff_id FROM handoffs")}
    if offered != ledger.offered:
        yield f"{len(ledger.offered)} offers of handoffs were acknowledged, and {len(offered)} are stored"


def _turns(store: Any, ledger: Ledger, troubles: Sequence[Trouble]) -> Iterator[str]:
    """Every acknowledged turn began and ended once, as its sender was told, and acted once."""
    columns = "t.request_id, t.turn_id, t.status, t.why, t.answer, a.agent_id, a.machine, t.started_at, t.ended_at"
    rows = store.execute(f"SELECT {columns} FROM pool_turns t JOIN pool_agents a ON a.pool_agent_id = t.agent_id")
    by_run = {row[0]: row for row in rows.fetchall()}
    for run in ledger.turns.keys() - by_run.keys():
        yield f"turn {run} was acknowledged and is gone"
    steps = store.execute("SELECT type, payload::json->>'turn_id' FROM events WHERE type LIKE 'turn.%'").fetchall()
    events = Counter(steps)
    acted = dict(
        store.execute("SELECT trace_id, count(*) FROM messages WHERE trace_id IS NOT NULL GROUP BY 1").fetchall()
    )
    for run, (_, turn, status, why, answer, agent, machine, started, ended) in by_run.items():
        ends = {step: count for (step, of), count in events.items() if of == turn and step.split(".")[1] in ENDS}
        if ends != {f"turn.{status}": 1}:
            yield f"turn {run} is {status} and ended by {ends}"
        if events["turn.started", turn] > 1:
            yield f"turn {run} was started {events['turn.started', turn]} times"
        told = ledger.turns.get(run)
        if told and told != status:
            yield f"turn {run} is {status}, and its sender was told that it is {told}"
        if status not in ("done", "interrupted"):
            yield f"turn {run} is {status}: {why}"
        whole = status == "done" and agent != "at-home" and "was refused" not in answer
        if acted.get(run, 0) > 1 or (whole and not acted.get(run)):
            yield f"turn {run}, which is {status}, acted {acted.get(run, 0)} times"
        if status == "interrupted" and not any(_explains(trouble, machine, started, ended) for trouble in troubles):
            yield f"turn {run} on {machine} was interrupted from {started} to {ended} without a reason: {why}"


def _explains(trouble: Trouble, machine: str, started: datetime, ended: datetime) -> bool:
    """Whether a trouble may end a turn of a machine: its worker was killed or stopped; the hub's has its lock by a
    connection to the database."""
    parts = (*HUBS, "database") if machine == "hub" else (machine,)
    return trouble.part in parts and trouble.began <= ended and trouble.ended >= started
