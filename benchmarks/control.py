"""What the pool's calls and turns take, each beside something measured in the same run.

python -m benchmarks.control
python -m benchmarks.control --kill 120    # for so many seconds, a SIGKILL of worker or hub every 5 s
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections import Counter
from contextlib import closing
from datetime import datetime, timedelta
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.harness import ROOT, Benchmark, Figures, amount, environment, percentile, set_up
from tests.acceptance.pool import runs
from tests.ports import free_port

RUNNERS = """
default = "calls"
[runners.clock]
kind = "acp"
command = ["{python}", "{root}/tests/control/acp_agent.py"]
read_paths = ["{root}"]
[runners.calls]
kind = "rehearsal"
max_iterations = 1000
script = [{{ when = "work", call = [{calls}], say = "worked" }}, {{ when = "stall", wait = {stall} }}, {{ say = "ok" }}]
"""
CALLED = "called"
CALL = f'{{ operation = "coordination.agent_get", arguments = {{ agent_id = "{CALLED}" }} }}'
CALLS = 50  # of tools, a turn
TURNS = 50  # at once
KILL_SECONDS = 5
END_SECONDS = 60  # a bound against hanging, not a figure
WARM_UP = 20
DIRECT = "--direct"  # this program is a pool of its own then
SENDERS = [f"sender-{number}" for number in range(16)]  # in turn: no transcript gets so long that reading it counts
MOMENTS = """
SELECT m.created_at, t.started_at FROM pool_wakes w JOIN pool_turns t USING (turn_id)
JOIN messages m ON m.message_id = w.item ORDER BY m.created_at
"""


async def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """One column: medians in ms, ratios, counts."""
    if options.kill:
        return {"killed": await kills(scratch, options.kill)}
    return {"pool": await play(scratch, options.calls, options.agents)}


class Hub:
    """A hub with a pool, on a port of its own over all its lives."""

    def __init__(self, home: Path, *, turns: int, stall: float = 3600) -> None:
        self.home, self.port, self.turns = home, free_port(), turns
        home.mkdir(mode=0o700)
        (home / "runners.toml").write_text(
            RUNNERS.format(calls=", ".join([CALL] * CALLS), stall=stall, python=sys.executable, root=ROOT)
        )
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.AsyncClient(base_url=self.url, timeout=600, limits=httpx.Limits(max_connections=300))
        self.token = ""

    async def start(self) -> None:
        """Return once it takes calls."""
        token = self.home / f"rpc-{self.port}.token"
        token.unlink(missing_ok=True)  # of a life that was killed
        flags = ("--pool-turns", str(self.turns), "--pool-agents", "1000", "--pool-wakes-a-minute", "100000")
        command = (sys.executable, "-m", "nexus_site", "serve", "--control", "--port", str(self.port), *flags)
        log = (self.home / "log").open("a")
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment(self.home), stdout=subprocess.DEVNULL, stderr=log
        )
        while not token.exists():
            await asyncio.sleep(0.1)
        self.token = token.read_text()
        while True:
            try:
                await self.rpc("list_agents")
                return
            except httpx.TransportError:
                await asyncio.sleep(0.1)

    @property
    def authorization(self) -> dict[str, str]:
        """An operator's: a hub that may run programs takes no local caller for one."""
        return {"Authorization": f"Bearer {self.token}"}

    async def rest(self, name: str, toolset: str = "", /, **arguments: Any) -> dict[str, Any]:
        """What an operation answers over REST."""
        path = f"/api/v1/{toolset}operations/{name}"
        envelope = (await self.client.post(path, json=arguments, headers=self.authorization)).json()
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    async def rpc(self, method: str, path: str = "/rpc", **params: Any) -> dict[str, Any]:
        """A call's whole answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await self.client.post(path, json=body, headers=self.authorization)
        found: dict[str, Any] = answer.json()
        return found

    def worker(self) -> psutil.Process | None:
        """The process that takes the turns, if it runs."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            try:
                line = child.cmdline()
            except psutil.Error:
                continue
            if "run-pool" in line and "nexus.control.worker.watchdog" not in line:
                return child
        return None

    async def stop(self) -> None:
        """End it, and see that nothing of it stays."""
        started = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(self.process.wait)
        await self.client.aclose()
        assert not [process for process in started if process.is_running()], "something of the pool stays"


async def play(scratch: Path, calls: int, agents: int) -> dict[str, Any]:
    """The figures of a hub whose pool works, beside one whose pool is idle."""
    figures: dict[str, Any] = {}
    hub, idle = Hub(scratch / "home", turns=TURNS), Hub(scratch / "idle", turns=TURNS)
    await hub.start()
    await idle.start()
    try:
        names = [f"agent-{number}" for number in range(agents)]
        for name in (*names, CALLED):
            await hub.rpc("create_agent", agent_id=name)
            await idle.rpc("create_agent", agent_id=name)
        kinds = {"no-op": lambda: hub.rpc("noop"), "list_agents": lambda: hub.rpc("list_agents")}
        took = await _medians(kinds, calls)
        figures["no-op over /rpc (ms)"], figures["list_agents (ms)"] = took["no-op"], took["list_agents"]
        figures["list_agents to a no-op (at most 2.5)"] = took["list_agents"] / took["no-op"]
        stalled = names[:TURNS]
        waiting = [
            asyncio.create_task(hub.rpc("send", f"/agent/{name}", content="stall", request_id="s")) for name in stalled
        ]
        await _until(hub, len(stalled))
        took = await _medians({"idle": lambda: idle.rpc("list_agents"), "at work": kinds["list_agents"]}, calls)
        figures[f"list_agents while {len(stalled)} turns run, to an idle hub's"] = took["at work"] / took["idle"]
        for name in stalled:
            await hub.rpc("cancel", f"/agent/{name}", request_id="s")
        await asyncio.gather(*waiting)
        figures |= await _work(hub, names, calls, kinds)
        figures |= await _sends(hub, scratch / "direct", calls)
        figures |= await _streams(hub, calls // 20)
        figures |= await _wakes(hub, scratch / "project", calls // 5)
    finally:
        await asyncio.gather(hub.stop(), idle.stop())
    return figures


async def _work(hub: Hub, names: list[str], calls: int, kinds: dict[str, Any]) -> dict[str, Any]:
    """Every agent takes a turn with many calls, the hub's own calls are timed meanwhile."""
    before = await _medians(kinds, calls)
    started = time.perf_counter()
    working = asyncio.gather(*(hub.rpc("send", f"/agent/{name}", content="work") for name in names))
    samples: list[float] = []
    while not working.done():
        moment = time.perf_counter()
        await hub.rpc("list_agents")
        samples.append(time.perf_counter() - moment)
        await asyncio.sleep(0.01)
    answers = await working
    seconds = time.perf_counter() - started
    exact = 0
    for name in names:
        entries = (await hub.rpc("get_messages", f"/agent/{name}", limit=2000))["result"]["messages"]
        exact += _is_exact(entries)
    return {
        f"turns of {CALLS} calls, answered": sum("result" in answer for answer in answers),
        "lost": sum("result" not in answer for answer in answers),
        "exact transcripts": exact,
        "calls a second": len(names) * CALLS / seconds,
        "list_agents meanwhile, to idle (at most 1.5)": statistics.median(samples) * 1000 / before["list_agents"],
    }


async def _sends(hub: Hub, home: Path, calls: int) -> dict[str, Any]:
    """A send, to its answer, by a runner that takes no time: over HTTP, and in process, the pool's own part."""
    home.mkdir(mode=0o700)
    shutil.copy(hub.home / "runners.toml", home)
    environ = environment(home, NEXUS_CONTROL="1")
    direct = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.control", DIRECT), cwd=ROOT, env=environ, stdin=PIPE, stdout=PIPE
    )
    assert direct.stdin and direct.stdout
    for name in SENDERS:
        await hub.rpc("create_agent", agent_id=name)
    over_http, in_process = [], []
    for name in islice(cycle(SENDERS), calls + WARM_UP):
        started = time.perf_counter()
        await hub.rpc("send", f"/agent/{name}", content="hello")
        over_http.append(time.perf_counter() - started)
        direct.stdin.write(b"\n")
        in_process.append(float(await direct.stdout.readline()))
    direct.stdin.close()
    await direct.wait()
    http, own = (statistics.median(took[WARM_UP:]) * 1000 for took in (over_http, in_process))
    return {
        "send over HTTP (ms)": http,
        "the pool's own part of a turn (ms, at most 10)": own,
    }


async def direct() -> None:
    """Make one send in this process, with a worker in it, for each line on stdin, and answer with its seconds."""
    from nexus.control.direct import DirectAgentAPI
    from nexus.control.worker.scheduling import Worker
    from nexus.core.clock import now

    worker = Worker(now())
    working = asyncio.create_task(worker.work())
    pool = DirectAgentAPI()
    for name in SENDERS:
        await pool.create_agent(name)
    for name in cycle(SENDERS):
        if not await asyncio.to_thread(sys.stdin.readline):
            break
        started = time.perf_counter()
        await pool.for_agent(name).send("hello")
        print(time.perf_counter() - started, flush=True)
    worker.stop()
    await working


async def _streams(hub: Hub, turns: int) -> dict[str, float]:
    """From the moment an agent process says something to the moment a client of its stream has read it."""
    await hub.rpc("create_agent", agent_id="clock", model="clock")
    took = list[float]()
    async with hub.client.stream("GET", "/agent/clock/stream", headers=hub.authorization) as stream:
        lines = stream.aiter_lines()
        for number in range(turns):
            turn = asyncio.create_task(hub.rpc("send", "/agent/clock", content="clock", request_id=f"c{number}"))
            async for line in lines:
                if line == "event: draft" and (text := json.loads((await anext(lines))[6:])["text"]):
                    took.append(time.time() - float(text))
                    break
            assert "result" in await turn
    await hub.rpc("destroy_agent", agent_id="clock")
    return {
        "from an agent's first word to its stream (ms, at most 50)": statistics.median(took) * 1000,
        "its p95 (ms)": percentile(took, 0.95) * 1000,
    }


async def _wakes(hub: Hub, project: Path, mails: int) -> dict[str, float]:
    """From the moment a mail's sender began to write it to the start of the turn; mails one at a time."""
    project.mkdir()
    await hub.rest("pool_create_agent", "control/", agent_id="woken", cwd=str(project), wake_on=["mail"])
    await hub.rest("agent_register", agent_id="ann")
    target = {"strategy": "direct", "agent_id": "woken"}
    for number in range(mails):
        mail = {"from_agent_id": "ann", "subject": "Look", "body": f"Number {number}.", "target": target}
        await hub.rest("message_create", project_root=str(project), **mail)
        while (await hub.rest("pool_get_context", "control/", agent_id="woken"))["message_count"] < 2 * (number + 1):
            await asyncio.sleep(0.02)
    with closing(sqlite3.connect(hub.home / "nexus.db")) as store:
        rows = store.execute(MOMENTS).fetchall()[mails // 10 :]
    took = [
        (datetime.fromisoformat(began) - datetime.fromisoformat(sent)) / timedelta(milliseconds=1)
        for sent, began in rows
    ]
    return {
        "from a mail to its turn (ms, at most 60)": statistics.median(took),
        "the same, p95 (ms)": percentile(took, 0.95),
    }


def _is_exact(messages: list[dict[str, Any]]) -> bool:
    """Whether the turn that worked stands there whole, in order, nothing twice."""
    start = next(position for position, row in enumerate(messages) if row["content"] == "work")
    turn = messages[start + 1 :]
    asked = [row["meta"]["tool_calls"][0]["id"] for row in turn[0:-1:2]]
    answered = [row["tool_call_id"] for row in turn[1:-1:2]]
    indexes = [row["index"] for row in messages]
    return (
        len(turn) == 2 * CALLS + 1
        and asked == answered
        and len(set(asked)) == CALLS
        and turn[-1]["content"].endswith("worked")
        and indexes == list(range(len(messages)))
    )


async def kills(scratch: Path, seconds: float) -> dict[str, Any]:
    """Ten clients send while worker and hub are killed in turn: what was answered stays, and nothing runs twice."""
    hub = Hub(scratch / "home", turns=8, stall=0.3)
    await hub.start()
    names = [f"agent-{number}" for number in range(10)]
    for name in names:
        await hub.rpc("create_agent", agent_id=name)
    answered: dict[tuple[str, str], str] = {}
    counts: Counter[str] = Counter()
    stop = asyncio.Event()

    async def work(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            request_id = f"r{number}"
            content = random.choice(("stall", "hello"))
            while True:  # the same request again, as a client does whose call was cut
                try:
                    answer = await hub.rpc("send", f"/agent/{name}", content=content, request_id=request_id)
                except (httpx.TransportError, ValueError):
                    await asyncio.sleep(0.2)
                    continue
                if "result" in answer and "content" in answer["result"]:
                    answered[name, request_id] = answer["result"]["content"]
                    counts["done"] += 1
                    break
                code = answer.get("error", {}).get("data", {}).get("code", "token")
                if code == "TURN_INTERRUPTED":
                    counts[code] += 1
                    break
                await asyncio.sleep(0.2)  # it ends, or the token is of its former life

    working = [asyncio.create_task(work(name)) for name in names]
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        await asyncio.sleep(KILL_SECONDS)
        count += 1
        victims = psutil.Process(hub.process.pid).children(recursive=True)
        if count % 2 and (worker := hub.worker()):
            counts["workers killed"] += 1
            worker.kill()
        else:
            counts["hubs killed"] += 1
            hub.process.kill()
            hub.process.wait()
            await hub.start()
            async with asyncio.timeout(END_SECONDS):  # what it had started ends by itself
                while any(map(runs, victims)):
                    await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*working)
    lost = twice = 0
    for name in names:
        page: list[dict[str, Any]] = []
        while len(
            rows := (await hub.rpc("get_messages", f"/agent/{name}", offset=len(page), limit=2000))["result"][
                "messages"
            ]
        ):
            page += rows
        asked = Counter(row["meta"]["request_id"] for row in page if row["role"] == "user")
        twice += sum(times > 1 for times in asked.values())
    for (name, request_id), content in answered.items():
        again = await hub.rpc("send", f"/agent/{name}", content="hello", request_id=request_id)
        if "error" in again:  # it was sent as the other content
            again = await hub.rpc("send", f"/agent/{name}", content="stall", request_id=request_id)
        lost += again.get("result", {}).get("content") != content
    await hub.stop()
    return {**counts, "finished turns": len(answered), "finished turns lost": lost, "turns run twice": twice}


async def _until(hub: Hub, running: int) -> None:
    """Return once so many turns are being taken: each has its message in the transcript by then."""
    while sum(agent["message_count"] for agent in (await hub.rpc("list_agents"))["result"]["agents"]) < running:
        await asyncio.sleep(0.1)


async def _medians(kinds: dict[str, Any], calls: int) -> dict[str, float]:
    """The median of each kind of call, in ms; the kinds take turns, so that a slow moment hits all alike."""
    samples: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(calls + WARM_UP):
        for kind, call in kinds.items():
            started = time.perf_counter()
            await call()
            samples[kind].append(time.perf_counter() - started)
    return {kind: statistics.median(values[WARM_UP:]) * 1000 for kind, values in samples.items()}


BENCHMARK = Benchmark(
    "control",
    __doc__,
    measure,
    {
        "--calls": amount(300, "timed, of each kind"),
        "--agents": amount(100, "that each take a turn of many calls"),
        "--kill": {"type": float, "metavar": "SECONDS", "help": "kill worker and hub in turn for so long"},
    },
    quick={"calls": 40, "agents": 10},
)
if __name__ == "__main__":
    if DIRECT in sys.argv:
        set_up(Path(os.environ["NEXUS_HOME"]), "nexus_site.settings")
        asyncio.run(direct())
    else:
        BENCHMARK.main()
