"""Two hubs and three machines of the pool over PostgreSQL, and what may happen to each of these processes."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg

from tests import warm
from tests.acceptance.hub import Hub, start
from tests.acceptance.pool import end_whole, inner_worker, send_signal, until
from tests.acceptance.processes import environment
from tests.ports import free_port
from tests.postgres import Cluster, database_of

HUBS, MACHINES = ("east", "west"), ("one", "two", "three")
FLAGS = ("--control", "--reaper", "--handoff-lease-ttl-seconds", "20")
ACT = (
    'call = [{ operation = "coordination.message_create", arguments = { from_agent_id = "{agent_id}", subject = "did", '
    'body = "{run}", trace_id = "{run}", project_root = "{cwd}", '
    'target = { strategy = "direct", agent_id = "collector" } } }]'
)
RUNNERS = f"""
default = "home"
[runners.home]
kind = "rehearsal"
script = [{{ wait = 0.5, say = "did {{content}}" }}]
[runners.farm]
kind = "rehearsal"
labels = ["linux"]
script = [
    {{ when = "^slow (?P<run>.*)", wait = 4, say = "did {{run}}", {ACT} }},
    {{ when = "^quick (?P<run>.*)", say = "did {{run}}", {ACT} }},
]
"""


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Trouble:
    """What was done to a part, from its beginning until all was well again."""

    kind: str
    part: str
    began: datetime
    ended: datetime


class Site:
    """All processes, each at an address that it keeps."""

    def __init__(self, scratch: Path) -> None:
        self.scratch, self.project = scratch, str(scratch / "project")
        self.stack = ExitStack()
        self.hubs: dict[str, Hub] = {}
        self.machines: dict[str, warm.Process] = {}
        self.ports = {name: free_port() for name in HUBS}
        self.lines: list[str] = []  # of hubs that are gone

    def __enter__(self) -> Site:
        for name in (*HUBS, *MACHINES, "project"):
            (self.scratch / name).mkdir(mode=0o700)
            runners = self.scratch / name / "runners.toml"
            runners.touch(mode=0o600)
            runners.write_text(RUNNERS)
        with ExitStack() as stack:
            self.cluster = stack.enter_context(Cluster())
            self.database_url = database_of(self.scratch, self.cluster.url)
            stack.callback(self._end)
            self.start_hub(HUBS[0])  # alone: it makes the tables
            with ThreadPoolExecutor() as pool:
                starting = [pool.submit(self.start_hub, name) for name in HUBS[1:]]
                starting += [pool.submit(self.start_machine, name) for name in MACHINES]
            for started in starting:
                started.result()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def _end(self) -> None:
        for process in self.machines.values():
            end_whole(process.pid)
        for hub in self.hubs.values():
            hub.process.kill()
            hub.process.wait()

    @property
    def environ(self) -> dict[str, str]:
        """Of a process beside the hubs, on the machine of one of them."""
        return environment(self.scratch / HUBS[0], NEXUS_DATABASE_URL=self.database_url)

    @contextmanager
    def store(self) -> Iterator[Any]:
        """A connection past Nexus to the store."""
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            yield connection

    def url(self, name: str | None = None) -> str:
        """The address of a hub, of either if none is named."""
        return f"http://127.0.0.1:{self.ports[name or random.choice(HUBS)]}"

    def start_hub(self, name: str) -> None:
        port = ("--port", str(self.ports[name]))
        self.hubs[name] = start(self.scratch / name, *port, *FLAGS, database=self.database_url)

    def start_machine(self, name: str) -> None:
        """Start a machine, again and again while one of its name counts as alive or the database is away; return once
        it works."""
        home = self.scratch / name
        environ = environment(home, NEXUS_DATABASE_URL=self.database_url)
        arguments = ["run-pool", "--labels", "linux", "--name", name, "--max-agents", "3"]
        log = home / "log"
        while True:
            with log.open("ab") as output:
                said = output.tell()
                process = warm.Process(arguments, environ, stdout=output.fileno(), stderr=output.fileno())
            self.machines[name] = process
            until(lambda: b" works; labels: linux" in log.read_bytes()[said:] or process.poll() is not None)  # noqa: B023
            if process.poll() is None:
                return
            why = log.read_bytes()[said:]
            assert b"works already" in why or why.startswith(b"[nexus] DB_ERROR"), why

    def works(self, name: str, since: int) -> bool:
        """Whether a later incarnation of a machine works."""
        with suppress(psycopg.OperationalError), self.store() as store:
            later = "SELECT 1 FROM pool_machines WHERE name = %s AND epoch > %s AND ended_at IS NULL"
            return store.execute(later, [name, since]).fetchone() is not None
        return False

    def is_lost(self, name: str) -> bool:
        with suppress(psycopg.OperationalError), self.store() as store:
            lost = "SELECT 1 FROM pool_machines WHERE name = %s AND is_lost"
            return store.execute(lost, [name]).fetchone() is not None
        return False

    # What is done to it. Each returns once the part works again.

    def kill_hub(self, name: str) -> None:
        self.hubs[name].stop(signal.SIGKILL)
        self.lines += self.hubs[name].lines
        self.start_hub(name)

    def stop_database(self, mode: str) -> None:
        self.cluster.stop(mode)
        time.sleep(random.uniform(0, 4))
        self.cluster.start()

    def kill_machine(self, name: str) -> None:
        """Its process, its guardian and its worker, all at once; its service manager starts it again."""
        self._at_work(name)
        end_whole(self.machines[name].pid)
        self.start_machine(name)

    def stop_machine(self, name: str, *, whole: bool) -> None:
        """Stop it, or only the process that gives its signs of life, until it counts as lost; then it goes on."""
        before = self._at_work(name)
        parent = psutil.Process(self.machines[name].pid)
        stopped = [parent, *(parent.children(recursive=True) if whole else ())]
        send_signal(stopped, signal.SIGSTOP)
        until(lambda: self.is_lost(name))
        send_signal(stopped, signal.SIGCONT)
        until(lambda: self.works(name, before + 1))

    def signal_worker(self, name: str, number: int) -> None:
        """Kill or stop the process that runs the turns, not the machine's own: another one takes its place."""
        before = self._at_work(name)
        send_signal([inner_worker(self.machines[name].pid)], number)
        until(lambda: self.works(name, before))

    def _at_work(self, name: str) -> int:
        """The incarnation of a machine, once it has taken a turn."""
        found: list[int] = []

        def look() -> bool:
            with suppress(psycopg.OperationalError), self.store() as store:
                taken = (
                    "SELECT m.epoch FROM pool_machines m JOIN pool_agents a ON a.machine = m.name"
                    " JOIN pool_turns t ON t.agent_id = a.pool_agent_id AND t.epoch = m.epoch WHERE m.name = %s LIMIT 1"
                )
                found.extend(row[0] for row in store.execute(taken, [name]))
            return bool(found)

        until(look)
        return found[0]


KINDS: dict[str, tuple[Sequence[str], Callable[[Site, str], None]]] = {
    "hub killed": (HUBS, Site.kill_hub),
    "database stopped (immediate)": (("database",), lambda site, part: site.stop_database("immediate")),
    "database stopped (fast)": (("database",), lambda site, part: site.stop_database("fast")),
    "machine killed": (MACHINES, Site.kill_machine),
    "machine stopped": (MACHINES, partial(Site.stop_machine, whole=True)),
    "beats stopped": (MACHINES, partial(Site.stop_machine, whole=False)),
    "worker killed": (MACHINES, partial(Site.signal_worker, number=signal.SIGKILL)),
    "worker stopped": (MACHINES, partial(Site.signal_worker, number=signal.SIGSTOP)),
}
SERVICES = ("hub killed", "database stopped (immediate)", "database stopped (fast)")
WORKERS = ("machine killed", "machine stopped", "beats stopped", "worker killed", "worker stopped")


async def happen(
    site: Site, kinds: Sequence[str], chance: random.Random, seconds: float, troubles: list[Trouble]
) -> None:
    """Each of these kinds once, then again in random order until the time is over."""
    deadline = time.monotonic() + seconds
    left = list(kinds)
    while left or time.monotonic() < deadline:
        await asyncio.sleep(chance.uniform(1, 4 if left else 10))
        kind = left.pop() if left else chance.choice(kinds)
        parts, act = KINDS[kind]
        part = chance.choice(parts)
        began = now()
        await asyncio.to_thread(act, site, part)
        troubles.append(Trouble(kind, part, began, now()))
        print(f"{began:%H:%M:%S} {kind}: {part}, well again after {(now() - began).total_seconds():.0f} s", flush=True)
