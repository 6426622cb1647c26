"""A hub with a pool, in a process of its own, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from tests.acceptance.hub import START_SECONDS, Hub, start

T = TypeVar("T")
LONGEST_PAUSE = 0.25  # seconds between two looks
RUNNERS = """
default = "rehearsal"
[runners.stalls]
kind = "rehearsal"
script = [{ when = "stall", wait = 3600 }, { say = "went on with {content}" }]
"""


class Pool:
    """A hub that serves a pool; `processes` are all that it was ever seen to have started."""

    def __init__(
        self,
        home: Path,
        *flags: str,
        database: str | None = None,
        runners: str = RUNNERS,
        command: list[str] | None = None,
    ) -> None:
        (home / "runners.toml").write_text(runners)
        self.hub: Hub = start(home, "--control", *flags, database=database, command=command)
        self.processes: set[psutil.Process] = set()
        self.token_file = home / f"rpc-{self.hub.address[1]}.token"
        self.threads = ThreadPoolExecutor(8)
        until(self.token_file.exists)
        self.token = self.token_file.read_text()

    def call(self, method: str, path: str = "/rpc", **params: Any) -> dict[str, Any]:
        """A JSON-RPC call; the whole answer."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = httpx.post(f"{self.hub.url}{path}", json=body, headers=headers, timeout=START_SECONDS)
        found: dict[str, Any] = answer.json()
        return found

    def result(self, method: str, path: str = "/rpc", **params: Any) -> dict[str, Any]:
        """What a call that succeeds answers."""
        answer = self.call(method, path, **params)
        assert "result" in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def operate(self, operation: str, **arguments: Any) -> dict[str, Any]:
        """What an operation of the pool that succeeds answers over REST."""
        url = f"{self.hub.url}/api/v1/control/operations/{operation}"
        headers = {"Authorization": f"Bearer {self.token}"}
        envelope = httpx.post(url, json=arguments, headers=headers, timeout=START_SECONDS).json()
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    def create(self, agent_id: str, **more: Any) -> None:
        """An agent whose runner stalls when it is told to."""
        self.result("create_agent", agent_id=agent_id, **{"model": "stalls", **more})

    def send(self, agent_id: str, content: str, **more: Any) -> dict[str, Any]:
        """Send and wait; the whole answer."""
        return self.call("send", f"/agent/{agent_id}", content=content, **more)

    def agents(self) -> dict[str, dict[str, Any]]:
        """By name."""
        return {agent["agent_id"]: agent for agent in self.result("list_agents")["agents"]}

    def begun(self, agent_id: str, content: str) -> None:
        """Return once an agent is at a turn."""
        until(lambda: any(row["content"] == content for row in self.messages(agent_id)))

    def messages(self, agent_id: str) -> list[dict[str, Any]]:
        """What an agent knows."""
        found: list[dict[str, Any]] = self.result("get_messages", f"/agent/{agent_id}")["messages"]
        return found

    def worker(self) -> psutil.Process:
        """The process that takes the turns."""
        found: list[psutil.Process] = []

        def look() -> bool:
            children = psutil.Process(self.hub.process.pid).children(recursive=True)
            self.processes |= set(children)
            found[:] = [child for child in children if "run-pool" in _line(child) and "guardian.py" not in _line(child)]
            return bool(found)

        until(look)
        return found[0]

    def kill_keeper(self) -> None:
        """SIGKILL for the process between."""
        guardian = self.worker().parent()
        assert guardian is not None
        guardian.kill()

    def kill(self) -> None:
        """SIGKILL for the hub."""
        self.worker()
        self.hub.stop(signal.SIGKILL)

    def left(self) -> set[psutil.Process]:
        """Whatever it had started and is still there."""
        return {process for process in self.processes if runs(process)}

    def close(self) -> None:
        """End what is left, whatever the test came to."""
        if self.hub.process.poll() is None:
            self.hub.process.kill()
            self.hub.process.wait()
        self.threads.shutdown(wait=False, cancel_futures=True)


def inner_worker(pid: int) -> psutil.Process:
    """The process that runs the turns of the machine whose process has this pid."""
    found: list[psutil.Process] = []

    def look() -> bool:
        for child in psutil.Process(pid).children(recursive=True):
            if "--since" in (line := _line(child)) and "guardian.py" not in line:
                found.append(child)
        return bool(found)

    until(look)
    return found[0]


def end_whole(pid: int) -> None:
    """Kill a process and all that it started, stopped first so that none can react to the end of another."""
    with suppress(psutil.NoSuchProcess):
        whole = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        send_signal(whole, signal.SIGSTOP)
        send_signal(whole[::-1], signal.SIGKILL)
        psutil.wait_procs(whole, START_SECONDS)


def send_signal(processes: Sequence[psutil.Process], number: int) -> None:
    """Signal those that are still there."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; a zombie has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two
        return False


def arguments() -> Iterator[str]:
    """Yield the words of the command lines of all processes but this one."""
    for process in psutil.process_iter(["cmdline"]):
        yield from process.info["cmdline"] or () if process.pid != os.getpid() else ()


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def until(reached: Callable[[], T | None]) -> T:
    """Wait for what comes for sure: the first true answer. A bound against hanging, not a figure."""
    began = time.monotonic()
    while not (answer := reached()):
        waited = time.monotonic() - began
        assert waited < START_SECONDS, "it never came"
        time.sleep(min(0.01 + waited / 10, LONGEST_PAUSE))  # a look costs the hub, too, that has to come there
    return answer
