"""What an operator sees of hooks that fail, or that a client does not run."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.conf import settings

from coordination.models import Workspace
from coordination.toolset import run
from inbox.monitoring import Picture
from nexus.core.clock import now
from nexus.core.coding_clients import CLIENTS, PLUGGED
from nexus.core.operations.errors import Code, NexusError
from nexus.hooks import entry, hook_state, problems, setup_record
from nexus.hooks.attention import KINDS
from nexus.hooks.harness import derived_id, setup_file
from nexus.hooks.setup_pieces import Kind
from nexus.hooks.setup_record import Record, Written
from tests.conftest import OPERATOR, Call

MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> Iterator[time_machine.Traveller]:
    with time_machine.travel(now(), tick=False) as clock:
        yield clock


@pytest.fixture
def home(tmp_path: Path, configure: Any) -> Path:
    configure(home=tmp_path / "home")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def shown(workspace: Any = None) -> list[str]:
    [kind] = [kind for kind in KINDS if kind.name == "hooks"]
    return [need.title for need in kind.find(Picture(now(), workspace), 10).needs]


def called(project: str, ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client calls the hook."""
    asked = json.dumps({"hook_event_name": "UserPromptSubmit", "cwd": project})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(asked.encode())))
    entry.main(lambda: (settings.NEXUS, ["--client", "codex"]), ask)


def fails(name: str, call: Any, **arguments: Any) -> Any:
    raise NexusError(Code.DB_ERROR, "The store is away.")


def test_a_hook_that_fails_is_shown_until_it_works_or_is_dismissed(
    home: Path, db: None, project: str, monkeypatch: pytest.MonkeyPatch, clock: time_machine.Traveller
) -> None:
    agent_id = derived_id("codex", project)
    monkeypatch.setattr("nexus.hooks.announcements._in_background", lambda work: work())
    assert shown() == []
    called(project, fails, monkeypatch)
    assert shown() == [f"The hook of {agent_id} fails"]
    [problem] = problems.list_problems()
    assert problem.advice.startswith("The store is away.")
    clock.shift(MINUTE)
    assert run(OPERATOR, "hook_dismiss", {"hook_id": problem.hook_id})["ok"]
    assert shown() == []
    assert run(OPERATOR, "hook_dismiss", {"hook_id": problem.hook_id})["error"]["code"] == "NOT_FOUND"
    clock.shift(MINUTE)
    called(project, fails, monkeypatch)
    assert shown() == [f"The hook of {agent_id} fails"]


@pytest.mark.parametrize(
    ("client", "kind", "path"),
    [("codex", "hooks", ".codex/hooks.json"), ("opencode", "whole", PLUGGED["opencode"].project_file)],
)
def test_a_hook_that_its_client_does_not_run_is_shown(
    home: Path, call: Call, project: str, clock: time_machine.Traveller, client: str, kind: Kind, path: str
) -> None:
    agent_id = derived_id(client, project)
    written = {f"{project}/{path}": Written(None, "{}", [(kind, client)], [])}
    setup_file(home, Path(project)).parent.mkdir()
    setup_record.save(home, Record(project, written))
    call("agent_register", agent_id=agent_id)
    assert shown() == [], "it may have to be started anew"
    clock.shift(11 * MINUTE)
    call("inbox_pull", agent_id=agent_id)
    assert shown() == [f"{agent_id} is at work, but its hook does not run"]
    assert CLIENTS[client].first in problems.list_problems()[0].advice
    call("workspace_resolve", project_root=project)
    assert shown(Workspace.objects.get())
    run(OPERATOR, "hook_dismiss", {"hook_id": problems.list_problems()[0].hook_id})
    assert shown() == []


def test_of_many_failures_it_keeps_and_shows_the_newest(
    home: Path, db: None, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_state, "MOST_FAULTS", 3)
    (home / "hooks").mkdir()
    begun = int(now().timestamp()) - 100
    for number in (5, 2, 7, 1, 6, 3, 0, 4):
        about = {"agent_id": f"agent-{number}", "project_root": project, "error": "e", "at": begun + number}
        file = home / "hooks" / f"{number}.{hook_state.FAULT}"
        file.write_text(json.dumps(about))
        os.utime(file, (begun + number,) * 2)
    assert shown() == [f"The hook of agent-{number} fails" for number in (7, 6, 5)]
    hook_state.record_fault(home, "ben", project, "It fails")
    assert len(list((home / "hooks").iterdir())) == 3


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", '{"at": "x"}'),
        '{"agent_id": 1, "project_root": 2, "error": 3, "at": 4}',
        '{"agent_id": "a", "project_root": "/", "error": "e", "at": 1e300}',
    ],
)
def test_it_reads_what_is_no_record(home: Path, db: None, project: str, text: str) -> None:
    for place, name in (("hooks", f"x.{hook_state.FAULT}"), ("setup", "x.json")):
        (home / place).mkdir()
        (home / place / name).write_text(text)
    assert shown() == []


def test_what_the_guard_let_pass_without_a_check_is_shown(home: Path, db: None) -> None:
    hook_state.record_fault(home, "ben", "/work/shop", "The store is away", passed="commit")
    assert shown() == ["A commit of ben was not checked"]
    [problem] = problems.list_problems()
    assert problem.advice == "The store is away – so git's hook in /work/shop let it pass (guard_unreadable is open)"


def test_what_the_guard_refused_without_a_check_is_shown_until_it_is_dismissed(
    home: Path, db: None, clock: time_machine.Traveller
) -> None:
    hook_state.record_fault(home, "ben", "/work/shop", "It fails")
    hook_state.record_fault(home, "ben", "/work/shop", "The store is away", "commit")
    hook_state.record_fault(home, "", "/work/shop", "The store is away", "push")
    assert sorted(shown()) == [
        "A commit of ben was refused without a check",
        "A push of a person was refused without a check",
        "The hook of ben fails",
    ]
    [problem] = [each for each in problems.list_problems() if not each.agent_id]
    clock.shift(60 * MINUTE)
    assert problem.advice == (
        "The store is away – so git's hook in /work/shop refuses everything (guard_unreadable is closed)"
    )
    assert run(OPERATOR, "hook_dismiss", {"hook_id": problem.hook_id})["data"]["agent_id"] == ""
    assert len(shown()) == 2
    clock.shift(MINUTE)  # and it is refused again
    hook_state.record_fault(home, "", "/work/shop", "The store is away", "push")
    assert len(shown()) == 3
