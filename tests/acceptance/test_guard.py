"""Two agents' processes and one file: the guard keeps the one from what the other holds."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.processes import Raw, nexus
from tests.hooks.harness import Harness
from tests.postgres import store_of
from tests.reservations.git import Repo


@pytest.fixture
def repo(tmp_path: Path, home: Path) -> Repo:
    """A repository that is guarded as people guard it."""
    repo = Repo.make(tmp_path / "shop")
    done = nexus(home, "guard", "install", "--repo", str(repo.top))
    assert done.returncode == 0, done.stderr
    return repo


class Agent:
    """An agent in a work tree of its own: a stdio process that it reserves with, and git."""

    def __init__(self, home: Path, repo: Repo, name: str) -> None:
        self.name, self.repo = name, repo.of(name, repo.top.parent / name)
        repo.ok("worktree", "add", "-q", str(self.repo.top))
        self.raw = Raw(home, "--toolsets", "coordination,files")

    def __enter__(self) -> Agent:
        self.raw.greet()
        return self

    def __exit__(self, *exc: object) -> None:
        self.raw.__exit__(*exc)

    def __call__(self, tool: str, **arguments: Any) -> Any:
        """The data of a call."""
        body = self.raw.call(tool, arguments)
        assert body["ok"], body
        return body["data"]

    def reserve(self, *paths: str) -> None:
        root = str(self.repo.top)
        self("agent_register", agent_id=self.name)
        self("files_reserve", project_root=root, agent_id=self.name, paths=list(paths), reason="the parser")


@pytest.fixture
def ann(home: Path, repo: Repo) -> Iterator[Agent]:
    with Agent(home, repo, "ann") as agent:
        yield agent


@pytest.fixture
def ben(home: Path, repo: Repo) -> Iterator[Agent]:
    with Agent(home, repo, "ben") as agent:
        yield agent


def test_two_agents_are_kept_from_editing_one_file(home: Path, ann: Agent, ben: Agent) -> None:
    ann.reserve("src/**")
    edit = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Edit",
        "tool_input": {"file_path": str(ben.repo.top / "src/b.py")},
    }
    harness = Harness(home, ben.repo.top)
    told = json.loads(harness.hook("--agent-id", "ben", text=json.dumps(edit)).stdout)
    assert 'held by "ann"' in told["hookSpecificOutput"]["additionalContext"]

    ben.repo.change("src/b.py")
    refused = ben.repo.git("commit", "-m", "the same file")
    assert refused.returncode == 1
    assert '  src/b.py: held by "ann" until' in refused.stderr
    ann.repo.change("src/b.py")
    ann.repo.ok("commit", "-qm", "by its holder")

    ann.raw.process.send_signal(signal.SIGKILL)  # what an agent holds outlives its process
    ann.raw.process.wait()
    assert ben.repo.git("commit", "-m", "the same file").returncode == 1

    with Raw(home, "--toolsets", "coordination,files") as again:
        again.greet()
        released = again.call("files_release", {"project_root": str(ann.repo.top), "agent_id": "ann"})
    assert released["ok"], released
    ben.repo.ok("commit", "-qm", "the same file")
    assert harness.hook("--agent-id", "ben", text=json.dumps(edit)).stdout == ""


def test_a_person_goes_over_what_an_agent_holds_on_the_record(home: Path, repo: Repo, ann: Agent) -> None:
    ann.reserve("a.py")
    repo.change("a.py")
    assert 'NEXUS_OVERRIDE="why" git commit' in repo.git("commit", "-m", "hotfix").stderr
    environ = store_of(home)
    done = repo.git("commit", "-m", "hotfix", NEXUS_OVERRIDE="the site is down", **environ)
    assert done.returncode == 0, done.stderr
    assert "goes on over what others hold, and that was recorded" in done.stderr
    events = ann("event_get", project_root=str(ann.repo.top), agent_id="ann", stream="file", cursor=0)["events"]
    (event,) = [event for event in events if event["type"] == "file.overridden"]
    assert event["payload"]["reason"] == "the site is down"
    assert event["payload"]["paths"] == ["a.py"]
    assert event["payload"]["holder"] == "ann"
    (message,) = ann("inbox_pull", agent_id="ann")["messages"]
    assert message["subject"] == "A commit overrode your reservation"
    assert "the site is down" in message["body"]


def test_a_repository_is_unguarded_as_it_was(home: Path, repo: Repo, ann: Agent) -> None:
    told = json.loads(nexus(home, "guard", "status", "--repo", str(repo.top), "--json").stdout)
    assert [(hook["hook"], hook["state"], hook["current"]) for hook in told["hooks"]] == [
        ("pre-commit", "installed", True),
        ("pre-push", "installed", True),
    ]
    ann.reserve("a.py")
    repo.change("a.py")
    checked = nexus(home, "guard", "check", "--repo", str(repo.top), NEXUS_OVERRIDE="only a check")
    assert checked.returncode == 1
    assert "a.py: held by" in checked.stderr
    events = ann("event_get", project_root=str(ann.repo.top), agent_id="ann", stream="file", cursor=0)["events"]
    assert [event["type"] for event in events] == ["file.reserved"]
    assert nexus(home, "guard", "uninstall", "--repo", str(repo.top)).returncode == 0
    repo.ok("commit", "-qm", "free")
    outside = nexus(home, "guard", "install", "--repo", str(home))
    assert outside.returncode == 1
    assert "CONFIG_ERROR" in outside.stderr
