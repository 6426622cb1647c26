"""Agents on stdio and short commands, by the hub and in processes of their own: start, memory, calls.

python -m benchmarks.relay                # 100 agents of each kind
python -m benchmarks.relay --agents 20 --json
python -m benchmarks.relay --quick
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.fairness import DAPHNE
from benchmarks.hub import running
from benchmarks.installed import compile_once
from benchmarks.stdio import HELLO, ROOT, RUNMCP

NOOP = ("-m", "benchmarks.noop_server")
KINDS = {"relay": {}, "serves itself": {"NEXUS_STANDALONE": "1"}}
COUNT = ("inbox_count", {"agent_id": "receiver"})
SHORT = (["status"], ["inbox"], ["send", "--to", "operator", "--subject", "s", "--body", "b"])
STARTS, WARM_UP = 10, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=100, help="of each kind (default: %(default)s)")
    parser.add_argument("--calls", type=int, default=500, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few agents and calls, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    agents, calls, starts = (5, 30, 3) if options.quick else (options.agents, options.calls, STARTS)
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        figures = measure(Path(scratch).resolve(), agents, calls, starts)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


class Agent:
    """A process on stdio and its client, the smallest that there is."""

    def __init__(self, home: Path, *arguments: str, **more: str) -> None:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home), **more}
        self.process = subprocess.Popen([sys.executable, *arguments], env=environ, stdin=-1, stdout=-1, stderr=-3)
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


def measure(scratch: Path, agents: int, calls: int, starts: int) -> dict[str, dict[str, float]]:
    """By kind of process, every figure; ms unless it says otherwise."""
    compile_once(scratch)
    home = scratch / "home"
    with running(DAPHNE, home) as hub:
        with running_agent(home, *RUNMCP, NEXUS_STANDALONE="1"), running_agent(home, *RUNMCP):
            pass  # their modules are compiled
        figures: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
        firsts: dict[str, list[float]] = {kind: [] for kind in (*KINDS, "bare")}
        spent: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for _ in range(starts):
            for kind, environ in KINDS.items():
                started = time.perf_counter()
                with running_agent(home, *RUNMCP, **environ) as agent:
                    firsts[kind].append(time.perf_counter() - started)
                    spent[kind].append(agent.cpu_seconds())
            firsts["bare"].append(_bare_python())
        bare = statistics.median(firsts["bare"])
        for kind in KINDS:
            figures[kind]["first answer"] = statistics.median(firsts[kind]) * 1000
            figures[kind]["first answer, times a bare Python"] = statistics.median(firsts[kind]) / bare
            figures[kind]["first answer, CPU of the process"] = statistics.median(spent[kind]) * 1000
        for kind, values in _commands(home, starts).items():
            figures[kind] |= values
        for kind, values in _calls(home, calls).items():
            figures[kind] |= values
        for kind, environ in KINDS.items():
            figures[kind] |= _team(home, environ, agents, hub.process.pid)
    return figures


def _bare_python() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", ""], check=True)
    return time.perf_counter() - started


def _commands(home: Path, times: int) -> dict[str, dict[str, float]]:
    """How long whole commands take, in turn; the first of each is not counted."""
    samples: dict[str, dict[str, list[float]]] = {kind: {words[0]: [] for words in SHORT} for kind in KINDS}
    for _ in range(1 + times):
        for words in SHORT:
            for kind, environ in KINDS.items():
                started = time.perf_counter()
                command = [sys.executable, "-m", "nexus_site", *words]
                given = {**os.environ, "PYTHONPATH": str(ROOT), "NEXUS_HOME": str(home), **environ}
                ran = subprocess.run(command, env=given, capture_output=True)
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
        seconds = time.perf_counter() - started
        held = [memory(agent.process.pid) for agent in team]
        of_hub = {what: value - before[what] for what, value in memory(hub).items()}
        hub_used = _cpu(hub) - cpu_of_hub
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime + hub_used
    return {
        f"{agents} agents, s until each is answered": seconds,
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


def table(figures: dict[str, dict[str, float]]) -> str:
    """The figures for people."""
    rows = [f"{'median in ms, unless it says otherwise':44}" + "".join(f"{kind:>16}" for kind in figures)]
    for what in next(iter(figures.values())):
        rows.append(f"{what:44}" + "".join(f"{values[what]:16.2f}" for values in figures.values()))
    return "\n".join(rows)


if __name__ == "__main__":
    main()
