"""Agents on stdio and short commands, by the hub and in processes of their own: start, memory, calls.

python -m benchmarks.relay                # 100 agents of each kind
python -m benchmarks.relay --agents 20
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import (
    HELLO,
    NOOP,
    RUNMCP,
    STANDALONE,
    WARM_UP,
    Benchmark,
    Figures,
    amount,
    compile_once,
    environment,
    running,
    seconds,
)

KINDS = {"relay": {}, "serves itself": STANDALONE}
COUNT = ("inbox_count", {"agent_id": "receiver"})
SHORT = (["status"], ["inbox"], ["send", "--to", "operator", "--subject", "s", "--body", "b"])


class Agent:
    """A process on stdio and its client, the smallest that there is."""

    def __init__(self, home: Path, *arguments: str, **more: str) -> None:
        command = [sys.executable, *arguments]
        self.process = subprocess.Popen(command, env=environment(home, **more), stdin=-1, stdout=-1, stderr=-3)
        assert self.process.stdin and self.process.stdout
        self._stdin, self._stdout = self.process.stdin, self.process.stdout

    def ask(self, *messages: dict[str, Any]) -> None:
        """Send messages, and wait for no answer."""
        self._stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        self._stdin.flush()

    def answer(self) -> Any:
        """The next answer."""
        return json.loads(self._stdout.readline())

    def call(self, name: str, arguments: dict[str, Any]) -> float:
        """How long a call takes, in s."""
        started = time.perf_counter()
        self.ask(called(name, arguments))
        answer = self.answer()
        assert not answer["result"]["isError"], answer
        return time.perf_counter() - started

    def cpu_seconds(self) -> float:
        """What the process has used so far."""
        return int(Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1e9

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._stdin.close()
        self._stdout.close()


def called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """By kind of process, every figure; median in ms unless it says otherwise."""
    compile_once(scratch)
    home = scratch / "home"
    with running(home) as hub:
        with running_agent(home, *RUNMCP, **STANDALONE), running_agent(home, *RUNMCP):
            pass  # their modules are compiled
        figures: Figures = {kind: {} for kind in KINDS}
        firsts: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "bare")}
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(options.starts):
            for kind, environ in KINDS.items():
                started = time.perf_counter()
                with running_agent(home, *RUNMCP, **environ) as agent:
                    firsts[kind].append(time.perf_counter() - started)
                    spent[kind].append(agent.cpu_seconds())
            firsts["bare"].append(seconds(lambda: subprocess.run([sys.executable, "-c", ""], check=True)))
        bare = statistics.median(firsts["bare"])
        for kind in KINDS:
            figures[kind]["first answer"] = statistics.median(firsts[kind]) * 1000
            figures[kind]["first answer, times a bare Python"] = statistics.median(firsts[kind]) / bare
            figures[kind]["first answer, CPU of the process"] = statistics.median(spent[kind]) * 1000
        for kind, values in _commands(home, options.starts).items():
            figures[kind] |= values
        for kind, values in _calls(home, options.calls).items():
            figures[kind] |= values
        for kind, environ in KINDS.items():
            figures[kind] |= _team(home, environ, options.agents, hub.process.pid)
    return figures


def _commands(home: Path, times: int) -> dict[str, dict[str, float]]:
    """How long whole commands take, in turn; the first of each is not counted."""
    samples: dict[str, dict[str, list[float]]] = {kind: {words[0]: [] for words in SHORT} for kind in KINDS}
    for _ in range(1 + times):
        for words in SHORT:
            for kind, environ in KINDS.items():
                started = time.perf_counter()
                command = [sys.executable, "-m", "nexus_site", *words]
                ran = subprocess.run(command, env=environment(home, **environ), capture_output=True)
                assert ran.returncode in (0, 3, 4), ran.stderr
                samples[kind][words[0]].append(time.perf_counter() - started)
    return {
        kind: {f"nexus {name}": statistics.median(values[1:]) * 1000 for name, values in of_kind.items()}
        for kind, of_kind in samples.items()
    }


@contextmanager
def running_agent(home: Path, *arguments: str, **environ: str) -> Iterator[Agent]:
    """An agent that has had the answer to its first call."""
    agent = Agent(home, *arguments, **environ)
    try:
        agent.ask(*HELLO, called("noop", {}) if arguments == NOOP else called(*COUNT))
        agent.answer()
        agent.answer()
        yield agent
    finally:
        agent.end()


def _calls(home: Path, calls: int) -> dict[str, dict[str, float]]:
    """What a call takes, and how much of it is the process's own work, beside a call of nothing of the bare SDK."""
    with ExitStack() as stack:
        bare = stack.enter_context(running_agent(home, *NOOP))
        agents = {k: stack.enter_context(running_agent(home, *RUNMCP, **environ)) for k, environ in KINDS.items()}
        samples: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "bare")}
        for number in range(WARM_UP + calls):
            if number == WARM_UP:
                before = {kind: agent.cpu_seconds() for kind, agent in agents.items()}
            samples["bare"].append(bare.call("noop", {}))
            for kind, agent in agents.items():
                samples[kind].append(agent.call(*COUNT))
        median = {kind: statistics.median(values[WARM_UP:]) * 1000 for kind, values in samples.items()}
        spent = {kind: (agent.cpu_seconds() - before[kind]) / calls * 1000 for kind, agent in agents.items()}
    return {
        kind: {
            "a read": median[kind],
            "a read, no-ops of the bare SDK": median[kind] / median["bare"],
            "CPU of the process for it": spent[kind],
            "CPU of the process, no-ops": spent[kind] / median["bare"],
        }
        for kind in KINDS
    }


def _team(home: Path, environ: dict[str, str], agents: int, hub: int) -> dict[str, float]:
    """All at once: until each has its first answer, and what they hold then."""
    before, used = memory(hub), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_of_hub = _cpu(hub)
    started = time.perf_counter()
    with ExitStack() as stack:
        team = []
        for _ in range(agents):
            team.append(agent := Agent(home, *RUNMCP, **environ))
            stack.callback(agent.end)
            agent.ask(*HELLO, called(*COUNT))
        for agent in team:
            agent.answer()
            agent.answer()
        took = time.perf_counter() - started
        held = [memory(agent.process.pid) for agent in team]
        of_hub = {what: value - before[what] for what, value in memory(hub).items()}
        hub_used = _cpu(hub) - cpu_of_hub
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime + hub_used
    return {
        f"{agents} agents, s until each is answered": took,
        f"{agents} agents, s of CPU with the hub's": spent,
        f"{agents} agents, MiB in sum (shared once)": sum(each["Pss"] for each in held),
        "one agent, MiB resident": statistics.median(each["Rss"] for each in held),
        "the hub for them, MiB": of_hub["Rss"],
    }


def memory(process: int) -> dict[str, float]:
    """What a process holds, in MiB: `Rss` resident, `Pss` with what is shared counted once among those who share."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    named = (line.split() for line in lines)
    return {name.rstrip(":"): int(value) / 1024 for name, value, *_ in named if name in ("Rss:", "Pss:")}


def _cpu(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


BENCHMARK = Benchmark(
    "relay",
    __doc__,
    measure,
    {
        "--agents": amount(100, "of each kind"),
        "--calls": amount(500, "timed, of each kind"),
        "--starts": amount(10, "of each kind"),
    },
    quick={"agents": 5, "calls": 30, "starts": 3},
)
if __name__ == "__main__":
    BENCHMARK.main()
