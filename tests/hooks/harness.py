"""A harness that calls the hook as real ones do, in processes of its own, and another agent beside it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, CompletedProcess
from typing import Any

from tests import warm
from tests.acceptance.hub import START_SECONDS
from tests.acceptance.pool import until as until  # for the tests of hooks
from tests.acceptance.processes import environment

HOOK, OTHERS = (Path(__file__).with_name(name) for name in ("patient.py", "others.py"))
PATIENT = HOOK.read_text()


class Harness:
    """One home, one project. `close` it when done."""

    def __init__(self, home: Path, project: Path) -> None:
        self.home, self.project = home, project
        self.environ = environment(home, HARNESS_DIRECTORY=str(project))
        for name in ("CLAUDE_PROJECT_DIR", "CURSOR_PROJECT_DIR"):
            self.environ.pop(name, None)
        self.others: warm.Process | None = None

    def hook(self, *arguments: str, text: str = "", cold: bool = False, **environ: str) -> CompletedProcess[str]:
        """Call the hook and wait for it; `cold` is in a Python that has imported nothing."""
        given = self.environ | environ
        if not cold:
            return warm.run(arguments, given, given=text, timeout=START_SECONDS, program=HOOK)
        command = [sys.executable, "-c", PATIENT, *arguments]
        return subprocess.run(command, input=text, env=given, text=True, capture_output=True, timeout=START_SECONDS)

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """An operation as another process calls it; its data."""
        if self.others is None:
            environ = {**self.environ, "DJANGO_SETTINGS_MODULE": "nexus_site.settings_agent"}
            self.others = warm.Process([], environ, stdin=PIPE, stdout=PIPE, text=True, program=OTHERS)
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
            assert self.others.stdin and self.others.stdout
            self.others.stdin.close()  # which ends it
            self.others.wait(START_SECONDS)
            self.others.stdout.close()
