"""The figures of reservations on stdio, each as a ratio to a no-op call of the same run.

python -m benchmarks.files              # a project without reservations and one of 5,000, side by side
python -m benchmarks.files --quick --json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from benchmarks.stdio import ROOT, RUNMCP, WARM_UP, Samples, _call, _timed, connect, table

HELD = 5_000
WANTED = {  # by kind, what nobody has of the n-th turn
    "a file": "src/area_{n}/free/file.py",
    "a directory": "src/area_{n}/free/",
    "a glob below a directory": "src/area_{n}/free/**/test_*.py",
    "a glob at any depth": "*_{n}.zig",
}
FILL = """
import django; django.setup()
from datetime import timedelta
from coordination.services import workspaces
from nexus.core.clock import now
from nexus.core.database import store
from nexus.reservations.models import Reservation
from nexus.reservations.patterns import extension, place
store().prepare()
here, moment = workspaces.locate({project!r}), now()
workspaces.ensure(here, moment)
forms = ["src/area_{{a}}/part_{{b}}/module_{{n}}.py", "src/area_{{a}}/part_{{b}}/{{n}}_*/**/*.ts"]
def made(n):
    pattern = forms[n % 2].format(a=n % 50, b=n % 7, n=n)
    return Reservation(reservation_id=f"rsv_{{n}}", workspace_id=here.workspace_id, agent_id=f"agent-{{n % 60}}",
        pattern=pattern, place=place(pattern), extension=extension(pattern), exclusive=True, seconds=86400, item=0,
        created_at=moment, expires_at=moment + timedelta(days=1))
Reservation.objects.bulk_create(map(made, range({count})), batch_size=1000)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=300, help="timed calls of each kind (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer calls and reservations, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nexus-bench-") as scratch:
        calls, held = (20, 500) if options.quick else (options.calls, HELD)
        figures = measure(Path(scratch).resolve(), calls, held)
    print(json.dumps(figures, indent=2) if options.json else table(figures))


def measure(scratch: Path, calls: int, held: int) -> dict[str, Any]:
    """Every figure: medians in milliseconds, and the ratios that are claimed."""
    project = scratch / "project"
    project.mkdir()
    homes = {"empty": scratch / "empty", "filled": scratch / "filled"}
    for name, home in homes.items():
        environ = {**os.environ, "NEXUS_HOME": str(home), "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
        filling = FILL.format(project=str(project), count=held if name == "filled" else 0)
        subprocess.run([sys.executable, "-c", filling], cwd=ROOT, env=environ, check=True)
    samples = asyncio.run(_calls(homes, project, calls))
    median = {kind: statistics.median(values) * 1000 for kind, values in samples.items()}
    return {
        "calls": calls,
        "history": {"reservations": held},
        "median_ms": {kind: round(value, 3) for kind, value in median.items()},
        "ratios": {
            f"{kind}, to a no-op call": round(value / median["no-op"], 2)
            for kind, value in median.items()
            if kind != "no-op"
        },
    }


async def _calls(homes: dict[str, Path], project: Path, calls: int) -> Samples:
    samples: Samples = {}
    async with AsyncExitStack() as stack:
        noop = await connect(stack, str(ROOT / "benchmarks/noop_server.py"), home=homes["empty"])
        clients = {
            name: await connect(stack, *RUNMCP, "--toolsets", "files", home=home) for name, home in homes.items()
        }
        here = {"project_root": str(project)}
        mine = {**here, "agent_id": "bench"}
        for turn in range(calls + WARM_UP):  # in turn, so that a slow moment of the machine hits all alike
            await _timed(samples, "no-op", noop.call_tool("noop", {}))
            for name, client in clients.items():
                for kind, wanted in WANTED.items():
                    reserve = _call(client, "files_reserve", **mine, paths=[wanted.format(n=turn % 50)])
                    await _timed(samples, f"reserve {kind}: {name}", reserve)
                    await _timed(samples, f"release {kind}: {name}", _call(client, "files_release", **mine))
                who = f"src/area_{turn % 50}/part_{turn % 7}/module_{turn}.py"
                await _timed(samples, f"who has a file: {name}", _call(client, "files_who", **here, path=who))
                await _timed(samples, f"who has a glob: {name}", _call(client, "files_who", **here, path="*.zig"))
    return {kind: values[WARM_UP:] for kind, values in samples.items()}


if __name__ == "__main__":
    main()
