"""Many processes writing at once: how long a call waits, in turn (`sqlite.write`) and by SQLite's lock alone."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.harness import ROOT, Benchmark, Figures, amount, environment, set_up, spread

WAYS = ("in turn", "SQLite's lock alone")
WARM_UP = 5  # calls of each process, not counted
READY = "ready"
WRITER = "--as-writer"  # this program is one of the processes then


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """Of each way calls a second and what calls took, in ms; and how the two compare."""
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    refused = dict.fromkeys(WAYS, 0)
    for turn in range(options.rounds):
        for way in WAYS:
            home = scratch / f"{way} {turn}"
            calls, busy = play(home, way, options.processes, options.seconds)
            taken[way] += calls
            refused[way] += busy
    lasted = options.seconds * options.rounds
    figures: Figures = {
        way: {"calls a second": len(calls) / lasted, **spread(calls), "refused as busy": refused[way]}
        for way, calls in taken.items()
    }
    ours, plain = (figures[way] for way in WAYS)
    figures["ratio"] = {what: ours[what] / plain[what] for what in ours if plain[what]}
    return figures


def play(home: Path, way: str, processes: int, seconds: float) -> tuple[list[float], int]:
    """The seconds that each call of one round took, and how many were refused; every other one must be in the store."""
    command = [sys.executable, "-m", "benchmarks.contention", WRITER, way, str(seconds)]
    writers = [
        subprocess.Popen(command, cwd=ROOT, env=environment(home), text=True, stdin=-1, stdout=-1)
        for _ in range(processes)
    ]
    for writer in writers:
        assert writer.stdout and writer.stdout.readline().strip() == READY
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("\n")
        writer.stdin.flush()
    answers = [json.loads(writer.communicate()[0]) for writer in writers]
    calls = [took for answer in answers for took in answer["took"]]
    count = "from benchmarks.harness import set_up; import sys, pathlib; set_up(pathlib.Path(sys.argv[1]));"
    count += "from inbox.models import Message; print(Message.objects.count())"
    stored = int(subprocess.check_output([sys.executable, "-c", count, str(home)], cwd=ROOT))
    assert stored == len(calls) + WARM_UP * processes, "what was answered is in the store"
    return calls, sum(answer["refused"] for answer in answers)


def write_on(way: str, seconds: float) -> None:
    """One writer: send messages, one after the other, and print `{took: [seconds], refused}`."""
    set_up(Path(os.environ["NEXUS_HOME"]))
    from coordination.toolset import run
    from nexus.core.database.sqlite import store as sqlite
    from nexus.core.operations.caller import Caller

    if way != WAYS[0]:
        sqlite._begin = lambda queue, begin: begin()
    me = Caller("benchmark")
    name = f"writer-{os.getpid()}"
    run(me, "agent_register", {"agent_id": name})
    letter = {"project_root": str(ROOT), "from_agent_id": name, "subject": "s", "body": "b"}
    letter["target"] = {"strategy": "direct", "agent_id": name}  # type: ignore[assignment]

    def send() -> bool:
        return bool(run(me, "message_create", letter)["ok"])

    assert all(send() for _ in range(WARM_UP))
    print(READY, flush=True)
    sys.stdin.readline()
    took, refused = [], 0
    end = time.perf_counter() + seconds
    while (started := time.perf_counter()) < end:
        if send():
            took.append(time.perf_counter() - started)
        else:
            refused += 1
    print(json.dumps({"took": took, "refused": refused}))


BENCHMARK = Benchmark(
    "contention",
    __doc__,
    measure,
    {
        "--processes": amount(8, "writers at once"),
        "--seconds": amount(4.0, "how long each round lasts"),
        "--rounds": amount(3, "rounds of each way, alternating"),
    },
    quick={"seconds": 1.0, "rounds": 1},
)
if __name__ == "__main__":
    if WRITER in sys.argv:
        write_on(sys.argv[2], float(sys.argv[3]))
    else:
        BENCHMARK.main()
