"""What a turn of a coding agent pays for `nexus hook`: whole processes, from start to exit.

    python -m benchmarks.hook

Budget: 300 ms when there is nothing to tell; with a plan that is kept, twice what it takes without;
for an edit of a file that nobody else holds, what it takes when there is nothing, both measured in turn;
80 ms for a message to tell of where a hub serves the home. CPU is that of the hook's process, and of the hub for it.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.fairness import DAPHNE
from benchmarks.guard import RESERVATIONS, reserve
from benchmarks.hub import running
from benchmarks.installed import compile_once
from nexus.core.database import store

ROOT = Path(__file__).resolve().parents[1]
CALLS = 40
MESSAGES, HANDOFFS = 20_000, 200
STANDALONE = {"NEXUS_STANDALONE": "1"}


class Taken(NamedTuple):
    """What one call took, in seconds."""

    wall: float
    cpu: float


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        home, project = Path(place, "home"), Path(place, "project")
        project.mkdir()
        compile_once(Path(place))
        os.environ.update(NEXUS_HOME=str(home), DJANGO_SETTINGS_MODULE="nexus_site.settings_agent")
        import django

        django.setup()
        del os.environ["DJANGO_SETTINGS_MODULE"]  # the processes that are started choose their own
        from benchmarks.fill import fill
        from coordination.toolset import run
        from nexus.core.operations.caller import Caller
        from nexus.hooks import signal_files

        store().prepare()
        fill(project, messages=MESSAGES, handoffs=HANDOFFS)

        def write() -> None:
            target = {"strategy": "direct", "agent_id": "builder"}
            arguments = {"project_root": str(project), "from_agent_id": "x", "subject": "s", "body": "b"}
            assert run(Caller("benchmark"), "message_create", {**arguments, "target": target})["ok"]

        run(Caller("benchmark"), "agent_register", {"agent_id": "builder"})
        call(project, "SessionStart")
        print(f"{CALLS} calls each, store of {MESSAGES} messages and {HANDOFFS} handoffs")
        report("nothing, and no signal", project, lambda: None)
        report("nothing, after a signal", project, lambda: signal_files.send(home, "builder"))
        report("a message to tell of", project, write)
        planned = Path(place, "planned")
        (planned / ".nexus" / "state").mkdir(parents=True)
        call(planned, "SessionStart")
        report("nothing, with a plan kept", planned, lambda: None)
        compare("nothing held", project)
        reserve(project)
        compare(f"{RESERVATIONS} held", project)
        with running(DAPHNE, home) as hub:
            call(project, "SessionStart")
            hub_before = hub.cpu_seconds()
            report("a message, by a hub", project, write)
            print(f"{'':26} of the hub   CPU {(hub.cpu_seconds() - hub_before) / CALLS * 1000:4.0f} ms a call")
            report("a message, beside a hub", project, write, **STANDALONE)


def report(what: str, project: Path, before: Callable[[], None], **environ: str) -> None:
    """What the calls take that follow `before`."""
    taken = []
    for _ in range(CALLS):
        before()
        taken.append(call(project, "PostToolUse", **environ))
    show(what, taken)


def compare(what: str, project: Path) -> None:
    """What the check of an edit takes beside a silent call: in turn, as a machine is not as busy all the time."""
    taken = [(call(project, "PostToolUse"), call(project, "PreToolUse")) for _ in range(CALLS)]
    for each, calls in zip(("nothing", "an edit"), zip(*taken, strict=True), strict=True):
        show(f"{each}, {what}", calls)


def show(what: str, taken: Sequence[Taken]) -> None:
    """Median and 95th percentile of what calls took, and the median of their CPU."""
    walls = [each.wall for each in taken]
    median, cpu = statistics.median(walls), statistics.median(each.cpu for each in taken)
    percentile = statistics.quantiles(walls, n=20)[-1]
    print(f"{what:<26} median {median * 1000:4.0f} ms   p95 {percentile * 1000:4.0f} ms   CPU {cpu * 1000:4.0f} ms")


def call(project: Path, event: str, **environ: str) -> Taken:
    """One call, and what it took."""
    used = {"tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
    text = json.dumps({"hook_event_name": event, "cwd": str(project), **used})
    before, started = _cpu_of_children(), time.perf_counter()
    subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "hook", "--agent-id", "builder"],
        input=text,
        text=True,
        env=os.environ | environ,
        check=True,
        capture_output=True,
    )
    return Taken(time.perf_counter() - started, _cpu_of_children() - before)


def _cpu_of_children() -> float:
    """Seconds of the processes that ended and were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
