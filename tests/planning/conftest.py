"""A project and calls of the planning toolset."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.planning import directory
from nexus.planning.toolset import PLANNING


class Project:
    """A project directory, the calls about it, and its files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / ".nexus" / "state"

    def body(self, tool: str, /, *, agent: str | None = None, **arguments: Any) -> dict[str, Any]:
        """The envelope of a call."""
        caller = Caller("test", agent_id=agent, connection="test:planning")
        return dispatch.run(PLANNING, caller, tool, {"project_root": str(self.root), **arguments})

    def call(self, tool: str, /, *, agent: str | None = None, **arguments: Any) -> Any:
        """The data; the test fails on an error."""
        body = self.body(tool, agent=agent, **arguments)
        assert body["ok"], body
        return body["data"]

    def refused(self, tool: str, /, **arguments: Any) -> tuple[str, str]:
        """Code and message of a call that must fail."""
        body = self.body(tool, **arguments)
        assert not body["ok"], body
        return body["error"]["code"], body["error"]["message"]

    def plan(self, *issues: str) -> Any:
        return self.call("plan_start", topic="Parser", issues=list(issues), research_summary="Read it.")

    def task(self, title: str = "Write", /, **more: Any) -> Any:
        return self.call("task_add", title=title, context="Why.", **more)["task"]

    def read(self, name: str) -> Any:
        """A file below .nexus as JSON; None without one."""
        path = self.root / ".nexus" / name
        return json.loads(path.read_text()) if path.exists() else None

    def write(self, name: str, document: Any) -> None:
        """Write a file below .nexus as another consumer would."""
        path = self.root / ".nexus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = document if isinstance(document, (str, bytes)) else json.dumps(document)
        path.write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.fixture
def nexus(db: None, tmp_path: Path) -> Project:
    """An empty project."""
    root = tmp_path / "project"
    root.mkdir()
    return Project(root.resolve())


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits for the lock of a plan, of which each takes a second on a clock of the test's own."""
    made: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: 100.0 + len(made), sleep=made.append, time=time.time)
    monkeypatch.setattr(directory, "time", clock)
    return made
