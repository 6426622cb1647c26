"""Many processes writing at once: how long a call waits, in turn (`sqlite.write`) and beside it by SQLite's lock alone.

python -m benchmarks.contention              # eight processes, in turns of a few seconds
python -m benchmarks.contention --processes 16 --seconds 10
python -m benchmarks.contention --quick --json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WAYS = ("in turn", "SQLite's lock alone")
WARM_UP = 5  # calls of each process, not counted
READY = "ready"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=8, help="writers at once (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=4, help="how long each round lasts (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each way, alternating (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one short round of each way, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--as-writer", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_writer:
        return write_on(options.as_writer, options.seconds)
    seconds, rounds = (1.0, 1) if options.quick else (options.seconds, options.rounds)
    figures = measure(options.processes, seconds, rounds)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def measure(processes: int, seconds: float, rounds: int) -> dict[str, Any]:
    """Of each way calls a second and what calls took, in milliseconds; and how the two compare."""
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    refused = dict.fromkeys(WAYS, 0)
    for _ in range(rounds):
        for way in WAYS:  # in turn, so that a slow moment of the machine hits both alike
            calls, busy = _round(way, processes, seconds)
            taken[way] += calls
            refused[way] += busy
    figures = {way: _figures(taken[way], seconds * rounds) | {"refused as busy": refused[way]} for way in WAYS}
    ours, plain = (figures[way] for way in WAYS)
    ratios = {name: round(ours[name] / plain[name], 2) for name in ours if plain[name]}
    return {"processes": processes, "seconds": seconds * rounds, **figures, "ratio": ratios}


def _round(way: str, processes: int, seconds: float) -> tuple[list[float], int]:
    """The seconds that each call of one round took, and how many were refused; every other one must be in the store."""
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NEXUS_HOME": scratch,
            "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent",
        }
        command = [sys.executable, "-m", "benchmarks.contention", "--as-writer", way, "--seconds", str(seconds)]
        writers = [
            subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdin=-1, stdout=-1) for _ in range(processes)
        ]
        for writer in writers:
            assert writer.stdout and writer.stdout.readline().strip() == READY
        for writer in writers:
            assert writer.stdin
            writer.stdin.write("\n")
            writer.stdin.flush()
        answers = [json.loads(writer.communicate()[0]) for writer in writers]
        count = "import django; django.setup(); from inbox.models import Message; print(Message.objects.count())"
        stored = int(subprocess.check_output([sys.executable, "-c", count], cwd=ROOT, env=environ))
    calls = [took for answer in answers for took in answer["took"]]
    assert stored == len(calls) + WARM_UP * processes, "what was acknowledged is in the store"
    return calls, sum(answer["refused"] for answer in answers)


def write_on(way: str, seconds: float) -> None:
    """One writer: send messages, one after the other, and print `{took: [seconds], refused}`."""
    import django

    django.setup()
    from coordination.toolset import run
    from nexus.core.database import sqlite
    from nexus.core.operations.caller import Caller

    if way != WAYS[0]:
        sqlite._begin = lambda queue, begin: begin()
    sqlite.prepare()
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


def _figures(took: list[float], seconds: float) -> dict[str, float]:
    ordered = sorted(took)

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 2)

    return {
        "calls a second": round(len(took) / seconds),
        "p50 ms": at(0.5),
        "p99 ms": at(0.99),
        "worst ms": at(1),
    }


def table(figures: dict[str, Any]) -> str:
    """The figures for people."""
    columns = (*WAYS, "ratio")
    rows = [f"{figures['processes']} processes, {figures['seconds']:g} s of each way", ""]
    rows += [f"{'':18}" + "".join(f"{column:>22}" for column in columns)]
    for name in figures[WAYS[0]]:
        rows.append(f"{name:18}" + "".join(f"{figures[column].get(name, ''):>22}" for column in columns))
    return "\n".join(rows)


if __name__ == "__main__":
    main()
