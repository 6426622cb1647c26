"""A harness that calls the hook as real ones do, in processes of its own, and another agent beside it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.acceptance.hub import START_SECONDS
from tests.acceptance.processes import environment

OTHERS = """
import json, sys, django
django.setup()
from nexus.core.database.store import store
from nexus.core.operations.caller import Caller
from nexus.core.operations import runner
from nexus.core.operations.registry import TOOLSETS
store().prepare()
for line in sys.stdin:
    name, arguments = json.loads(line)
    toolset = next(each for each in TOOLSETS.values() if name in each.operations)
    print(json.dumps(runner.run(toolset, Caller("test"), name, arguments)), flush=True)
"""

PATIENT = """
import sys
from nexus.hooks import entry
entry.TIME_LIMIT_SECONDS = 60
from nexus_site import launch
launch.main(["nexus", "hook", *sys.argv[1:]])
"""  # on a machine that is busy with other things, too


class Harness:
    """One home, one project. `close` it when done."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home, self.project = home, project
        self.environ = environment(home)
        for name in ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR"):
            self.environ.pop(name, None)
        self.others: subprocess.Popen[str] | None = None

    def hook(self, *arguments: str, text: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        """Call the hook and wait for it."""
        return subprocess.run(
            [sys.executable, "-c", PATIENT, *arguments],
            input=text,
            env=self.environ | environ,
            cwd=self.project,
            text=True,
            capture_output=True,
            timeout=START_SECONDS,
            check=False,
        )

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """An operation as another process calls it; its data."""
        if self.others is None:
            self.others = subprocess.Popen(
                [sys.executable, "-c", OTHERS],
                env={**self.environ, "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.others.stdin and self.others.stdout
        self.others.stdin.write(json.dumps([name, arguments]) + "\n")
        self.others.stdin.flush()
        envelope = json.loads(self.others.stdout.readline())
        assert envelope["ok"], envelope
        data: dict[str, Any] = envelope["data"]
        return data

    def until_session(self) -> dict[str, str]:
        """Wait for the session that a first call opens behind its harness's back; what the hook keeps of it."""
        file = until(lambda: next(iter(self.home.glob("hooks/*.session.json")), None))
        kept: dict[str, str] = json.loads(file.read_text())
        return kept

    def close(self) -> None:
        if self.others is not None:
            self.others.communicate(timeout=START_SECONDS)  # closes its stdin, which ends it


def until(found: Callable[[], Any]) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + START_SECONDS
    while not (answer := found()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)
    return answer
