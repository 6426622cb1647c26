"""Two agents' processes and one file: the guard keeps the one from what the other holds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from nexus.reservations.guard.check import VERBS
from tests.acceptance.hub import ROOT, serving
from tests.acceptance.processes import Raw, environment, nexus
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
    installed = [(name, "installed", True) for name in VERBS]
    assert [(hook["hook"], hook["state"], hook["current"]) for hook in told["hooks"]] == installed
    ann.reserve("a.py")
    repo.change("a.py")
    # A person's: the suite starts it with the process that also starts ann's server, as her client would.
    as_person = {"NEXUS_AGENT_ID": "", "NEXUS_OVERRIDE": "only a check"}
    checked = nexus(home, "guard", "check", "--repo", str(repo.top), **as_person)
    assert checked.returncode == 1
    assert "a.py: held by" in checked.stderr
    emptied = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": ""}
    unseen = nexus(home, "guard", "check", "--repo", str(repo.top), NEXUS_AGENT_ID="ann", **emptied)
    assert unseen.returncode == 1
    assert "git does not run the guard's hooks here: core.hooksPath (this shell's environment)" in unseen.stderr
    events = ann("event_get", project_root=str(ann.repo.top), agent_id="ann", stream="file", cursor=0)["events"]
    assert [event["type"] for event in events] == ["file.reserved"]
    assert nexus(home, "guard", "uninstall", "--repo", str(repo.top)).returncode == 0
    repo.ok("commit", "-qm", "free")
    outside = nexus(home, "guard", "install", "--repo", str(home))
    assert outside.returncode == 1
    assert "CONFIG_ERROR" in outside.stderr


# A client as the guard sees one: it starts its agent's server and its shells, and says to neither who its agent is.
CLIENT = """
import json, subprocess, sys

nexus, agent_id, root, *shells = json.loads(sys.argv[1])
server = subprocess.Popen(nexus, stdin=-1, stdout=-1)

def ask(method, **params):
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    server.stdin.write(json.dumps(request).encode() + b"\\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())

info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
ask("initialize", **info)
ask("tools/call", name="agent_register", arguments={"agent_id": agent_id})
given = {"project_root": root, "agent_id": agent_id, "paths": [f"{agent_id}.py"]}
ask("tools/call", name="files_reserve", arguments=given)
for shell in shells:
    done = subprocess.run(["sh", "-c", shell], cwd=root, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    print(json.dumps([done.returncode, done.stderr]), flush=True)
server.kill()
"""


def shells_of(home: Path, repo: Repo, agent_id: str, *lines: str) -> list[tuple[int, str]]:
    """What the shells of an agent's client say, one after another."""
    server = [sys.executable, str(ROOT / "manage.py"), "runmcp", "--toolsets", "coordination,files"]
    said = subprocess.run(
        [sys.executable, "-c", CLIENT, json.dumps([server, agent_id, str(repo.top), *lines])],
        env=environment(home),
        stdout=subprocess.PIPE,
        check=True,
    )
    return [(code, text) for code, text in map(json.loads, said.stdout.splitlines())]


@pytest.mark.parametrize("has_hub", [False, True])
def test_it_knows_whose_shell_a_commit_comes_from(home: Path, repo: Repo, has_hub: bool) -> None:
    commit = "echo x >> ann.py; git add ann.py; git commit -qm second"
    with serving(home) if has_hub else nullcontext():
        assert shells_of(home, repo, "ann", commit) == [(0, "")]
        [(code, said)] = shells_of(home, repo, "ben", f"NEXUS_OVERRIDE=mine; export NEXUS_OVERRIDE; {commit}")
    assert code == 1
    assert 'ann.py: held by "ann"' in said
    assert 'You are agent "ben": only a person may override this' in said
    [noted] = (home / "clients").iterdir()  # of ben's client, which has ended: ann's was removed when ben came
    _, start, system = noted.name.split("-")
    noted.rename(noted.with_name(f"{os.getpid()}-{start}-{system}"))  # as if this process had its number
    assert "A person may override this" in repo.git("commit", "-m", "second").stderr
