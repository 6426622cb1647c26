"""Planning over real stdio processes: many at once with one killed, and a day of a team."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nexus.planning import schemas
from tests.acceptance.processes import Raw

PROCESSES, TASKS, READS = 5, 6, 1_000
KILLED = 3  # the answers of the one that is killed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty project."""
    root = tmp_path.resolve() / "project"
    root.mkdir()
    return root


class Agent:
    """A stdio process that is at work on one project."""

    def __init__(self, home: Path, root: Path, name: str, **more: str) -> None:
        self.name, self.root = name, root
        self.raw = Raw(home, "--toolsets", "coordination,planning", **more)

    def __enter__(self) -> Agent:
        self.raw.__enter__()
        self.raw.greet()
        return self

    def __exit__(self, *exc: object) -> None:
        self.raw.__exit__(*exc)

    def __call__(self, tool: str, **arguments: Any) -> Any:
        """The data of a call about the project; sent again for as long as the answer says that this helps."""
        while True:
            body = self.raw.call(tool, {"project_root": str(self.root), **arguments})
            if body["ok"]:
                return body["data"]
            assert body["error"]["details"].get("retryable"), body

    def begin(self, tool: str, **arguments: Any) -> None:
        """Send a call, and do not wait for its answer."""
        params = {"name": tool, "arguments": {"project_root": str(self.root), **arguments}}
        self.raw.write(json.dumps({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": params}).encode())

    def crash(self) -> None:
        self.raw.process.send_signal(signal.SIGKILL)
        self.raw.process.wait(30)


@dataclass
class Record:
    """What was answered."""

    added: dict[int, str] = field(default_factory=dict)  # by id, the title
    status: dict[int, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, task: dict[str, Any]) -> None:
        with self.lock:
            assert self.added.setdefault(task["id"], task["title"]) == task["title"], "an id was given twice"
            self.status[task["id"]] = task["status"]


def work(agent: Agent, record: Record, tasks: int) -> None:
    """Add tasks, begin and complete each."""
    for number in range(tasks):
        task = agent("task_add", title=f"{agent.name} {number}", context="Why.")["task"]
        record.note(task)
        for status in ("in_progress", "completed"):
            record.note(agent("task_update", id=task["id"], status=status)["task"])


def test_what_several_processes_do_at_once_is_there_once_and_the_file_is_always_valid(home: Path, root: Path) -> None:
    record, done, file = Record(), threading.Event(), root / ".nexus/state/tasks.json"

    def read() -> int:
        reads = 0
        while not done.wait(0.001) or reads < READS:
            schemas.TASKS.parse(file.read_bytes())
            reads += 1
        return reads

    with ExitStack() as stack:
        *agents, victim = [
            stack.enter_context(agent)
            for agent in [Agent(home, root, f"worker-{number}") for number in range(PROCESSES)]
        ]
        record.note(victim("task_add", title="first of another", context="Why.")["task"])
        with ThreadPoolExecutor(PROCESSES + 1) as pool:
            reading = pool.submit(read)
            working = [pool.submit(work, agent, record, TASKS) for agent in agents]
            work(victim, record, KILLED)
            victim.begin("task_add", title="unanswered", context="Why.")
            while not (root / ".nexus/state/.lock").stat().st_size:  # somebody writes: it, or whom it waits for
                pass
            victim.crash()
            for each in working:
                each.result()
            done.set()
            assert reading.result() >= READS
        listed = agents[0]("task_list")["tasks"]

    assert schemas.TASKS.parse(file.read_bytes())["tasks"] == listed
    assert [task["id"] for task in listed] == list(range(1, len(listed) + 1))
    found = {task["id"]: task for task in listed}
    assert {number: found[number]["title"] for number in record.added} == record.added
    assert {number: found[number]["status"] for number in record.status} == record.status
    assert {task["title"] for number, task in found.items() if number not in record.added} <= {"unanswered"}
    assert len(record.added) == (PROCESSES - 1) * TASKS + KILLED + 1
