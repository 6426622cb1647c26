"""What a turn of a coding agent pays for `nexus hook`: whole processes, from start to exit.

Budget: 300 ms when there is nothing to tell; with a plan that is kept, twice what it takes without; for an edit of a
file that nobody else holds, what it takes when there is nothing, both measured in turn; 80 ms for a message to tell of
where a hub serves the home. CPU is that of the hook's process, and of the hub for it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness import (
    ROOT,
    STANDALONE,
    Benchmark,
    Figures,
    amount,
    compile_once,
    percentile,
    running,
    seconds,
    set_up,
)

MESSAGES, HANDOFFS, RESERVATIONS = 20_000, 200, 5_000


class Taken(NamedTuple):
    """What one call took, in seconds."""

    wall: float
    cpu: float


def measure(scratch: Path, options: argparse.Namespace) -> Figures:
    """Of each case the median and 95th percentile in ms, and the median of CPU."""
    home, project, planned = (scratch / name for name in ("home", "project", "planned"))
    project.mkdir()
    compile_once(scratch)
    set_up(home)
    from benchmarks.fill import Sizes, fill_store, hold_globs
    from coordination.toolset import run
    from nexus.core.operations.caller import Caller
    from nexus.hooks import signal_files

    end = datetime.now(UTC)
    fill_store(Sizes(MESSAGES, 2 * MESSAGES, HANDOFFS, posts=0, reservations=0), end, project)
    figures: Figures = {"median ms": {}, "p95 ms": {}, "CPU ms": {}}

    def write() -> None:
        target = {"strategy": "direct", "agent_id": "builder"}
        arguments = {"project_root": str(project), "from_agent_id": "x", "subject": "s", "body": "b"}
        assert run(Caller("benchmark"), "message_create", {**arguments, "target": target})["ok"]

    def show(what: str, taken: Sequence[Taken]) -> None:
        walls = [each.wall * 1000 for each in taken]
        figures["median ms"][what] = statistics.median(walls)
        figures["p95 ms"][what] = percentile(walls, 0.95)
        figures["CPU ms"][what] = statistics.median(each.cpu for each in taken) * 1000

    def report(what: str, where: Path, before: Callable[[], object], **environ: str) -> None:
        """What the calls take that follow `before`."""
        taken = []
        for _ in range(options.calls):
            before()
            taken.append(hook(where, "PostToolUse", **environ))
        show(what, taken)

    def compare(what: str) -> None:
        """What the check of an edit takes beside a silent call."""
        taken = [(hook(project, "PostToolUse"), hook(project, "PreToolUse")) for _ in range(options.calls)]
        for each, calls in zip(("nothing", "an edit"), zip(*taken, strict=True), strict=True):
            show(f"{each}, {what}", calls)

    run(Caller("benchmark"), "agent_register", {"agent_id": "builder"})
    hook(project, "SessionStart")
    report("nothing, no signal", project, lambda: None)
    report("nothing, after a signal", project, lambda: signal_files.send(home, "builder"))
    report("a message", project, write)
    (planned / ".nexus" / "state").mkdir(parents=True)
    hook(planned, "SessionStart")
    report("nothing, with a plan kept", planned, lambda: None)
    compare("none held")
    hold_globs(project, options.reservations, end)
    compare(f"{options.reservations} held")
    with running(home) as hub:
        hook(project, "SessionStart")
        before = hub.cpu_seconds()
        report("a message, by a hub", project, write)
        of_hub = (hub.cpu_seconds() - before) / options.calls * 1000
        figures["CPU ms"]["a message, by a hub: of the hub"] = of_hub
        report("a message, beside a hub", project, write, **STANDALONE)
    return figures


def hook(project: Path, event: str, **environ: str) -> Taken:
    """One call, and what it took."""
    used = {"tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
    text = json.dumps({"hook_event_name": event, "cwd": str(project), **used})
    command = [sys.executable, str(ROOT / "manage.py"), "hook", "--agent-id", "builder"]
    before, given = _cpu_of_children(), os.environ | environ
    wall = seconds(lambda: subprocess.run(command, input=text, text=True, env=given, check=True, capture_output=True))
    return Taken(wall, _cpu_of_children() - before)


def _cpu_of_children() -> float:
    """Seconds of the processes that ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


BENCHMARK = Benchmark(
    "hook",
    __doc__,
    measure,
    {"--calls": amount(40, "of each case"), "--reservations": amount(RESERVATIONS, "that others hold")},
    quick={"calls": 3, "reservations": 500},
)
if __name__ == "__main__":
    BENCHMARK.main()
