"""What calls of reservations take on stdio, with none held and with thousands, beside one that does nothing."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness import WARM_UP, Benchmark, Figures, StdioCalls, amount, call, set_up

WANTED = {  # by kind, what nobody has of the n-th turn
    "a file": "src/area_{n}/free/file.py",
    "a directory": "src/area_{n}/free/",
    "a glob below a directory": "src/area_{n}/free/**/test_*.py",
    "a glob at any depth": "*_{n}.zig",
}


def measure(scratch: Path, options: argparse.Namespace) -> Awaitable[Figures]:
    """By kind of call, its median and how many calls that do nothing take as long."""
    set_up(scratch / "filled")
    from benchmarks.fill import hold_globs

    project = scratch / "project"
    project.mkdir()
    hold_globs(project, options.held, datetime.now(UTC))
    homes = {"none held": scratch / "empty", f"{options.held} held": scratch / "filled"}
    return compare(scratch, project, homes, options.calls)


async def compare(scratch: Path, project: Path, homes: dict[str, Path], turns: int) -> Figures:
    """What calls take over the store of each home."""
    here, mine = {"project_root": str(project)}, {"project_root": str(project), "agent_id": "bench"}
    async with StdioCalls(scratch) as calls:
        clients = {name: await calls.connect(home, "--toolsets", "files") for name, home in homes.items()}
        for turn in range(WARM_UP + turns):
            file = f"src/area_{turn % 50}/part_{turn % 7}/module_{turn}.py"
            for name, client in clients.items():
                for kind, wanted in WANTED.items():
                    reserve = call(client, "files_reserve", **mine, paths=[wanted.format(n=turn % 50)])
                    await calls.time(f"reserve {kind}, {name}", reserve)
                    await calls.time(f"release {kind}, {name}", call(client, "files_release", **mine))
                await calls.time(f"who has a file, {name}", call(client, "files_who", **here, path=file))
                await calls.time(f"who has a glob, {name}", call(client, "files_who", **here, path="*.zig"))
        return calls.figures()


BENCHMARK = Benchmark(
    "files",
    __doc__,
    measure,
    {"--calls": amount(300, "of each kind"), "--held": amount(5_000, "reservations of others")},
    quick={"calls": 20, "held": 500},
)
if __name__ == "__main__":
    BENCHMARK.main()
