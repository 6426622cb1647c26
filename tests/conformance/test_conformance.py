"""Our own fixtures, played in this process, and the command that plays any over stdio."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nexus.core.operations.caller import Caller
from nexus.core.operations.dispatch import run
from nexus.planning.toolset import PLANNING
from tests.conformance.__main__ import main
from tests.conformance.loading import Fixture, load
from tests.conformance.runner import BRANCH, Call, play

DIRECTORY = Path(__file__).with_name("fixtures")
OURS = list(load(DIRECTORY))
ANSWERS = {  # by tool, what its result may hold
    "plan_start": "created plan_id topic issueCount previousArchived",
    "plan_status": "active plan_id topic issues research_summary summary",
    "plan_update": "added removed edited reopened issue",
    "plan_decide": "decided issue allComplete message remaining",
    "task_add": "task warnings",
    "task_list": "exists goal tasks summary",
    "task_update": "task claim_epoch submitted",
    "task_close": "closed cycle branch archived deleted total_cycles memoryHint",
    "history_search": "total showing cycles",
    "context": "branch activeMode goal tasksSummary decisions",
    "artifact_write": "success path",
}


@pytest.fixture
def tools(db: None) -> Call:
    """The planning tools, in this process: over stdio the command of this package plays them."""
    caller = Caller("test", connection="test:conformance")
    return lambda tool, arguments: json.loads(json.dumps(run(PLANNING, caller, tool, dict(arguments))))  # as on a wire


def each(fixtures: list[Fixture]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fixture", fixtures, ids=[fixture.test_id for fixture in fixtures])


def asking(tool: str, **postcondition: Any) -> dict[str, Any]:
    action = {"tool": tool, "params": {}}
    return {
        "test_id": f"asking_{tool}",
        "description": "One call of a tool",
        "action": action,
        "postcondition": postcondition,
    }


def test_it_has_fixtures_for_every_tool() -> None:
    counted = Counter(fixture.body["action"]["tool"] for fixture in OURS if "action" in fixture.body)
    assert set(counted) == set(ANSWERS) and min(counted.values()) >= 3
    assert sum("steps" in fixture.body for fixture in OURS) >= 4
    assert len({fixture.test_id for fixture in OURS}) == len(OURS)


@each(OURS)
def test_it_agrees_and_answers_nothing_else(fixture: Fixture, tools: Call, project: str) -> None:
    strange: list[tuple[str, set[str]]] = []

    def call(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        envelope = tools(tool, arguments)
        more = set(envelope.get("data", ())) - set(ANSWERS[tool].split())
        strange.extend([(tool, more)] if more else [])
        return envelope

    assert play(fixture, call, Path(project)) == []
    assert strange == []


@pytest.mark.usefixtures("runs_git")
@each([fixture for fixture in OURS if fixture.file in ("tools/task-close.json", "tools/context.json")])
def test_it_agrees_in_a_repository_without_a_branch(fixture: Fixture, tools: Call, project: str) -> None:
    assert play(fixture, tools, Path(project), "detached") == []


@pytest.mark.usefixtures("runs_git")
@pytest.mark.parametrize("tool", ["context", "task_close"])
def test_it_tells_the_branch_of_a_repository(tool: str, tools: Call, project: str) -> None:
    asked = asking(tool, return_value={"$.branch": BRANCH})
    assert play(Fixture("a.json", "branch", asked), tools, Path(project), "branch") == []


@pytest.mark.usefixtures("starts_processes")
def test_the_command_reports_each_fixture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, wrong = (
        asking("plan_status", return_value={"$.active": False}),
        asking("task_list", return_value={"$.exists": True}),
    )
    silent = asking("plan_update", error=True)
    silent["action"]["params"] = {"deep": json.loads("[" * 500 + "]" * 500)}  # which the client cannot send
    event = {"test_id": "spawn", "description": "An agent is started", "event": {"type": "agent_spawn"}}
    for name, content in (
        ("tools/good", [good]),
        ("tools/silent", silent),
        ("tools/wrong", wrong),
        ("lifecycle/spawn", event),
    ):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said.pop(4).startswith("        no answer: "), "silence is no refusal"
    assert said == [
        "n/a   lifecycle/spawn.json  spawn",
        "        an event of a harness; only tools are played",
        "ok    tools/good.json  asking_plan_status",
        "FAIL  tools/silent.json  asking_plan_update",
        "FAIL  tools/wrong.json  asking_task_list",
        "        $.exists: expected true, found false",
        "1 passed, 2 failed, 1 not applicable",
    ]
    assert main([str(tmp_path), "-k", "plan_status", "--json"]) == 0
    file, test_id = "tools/good.json", "asking_plan_status"
    assert json.loads(capsys.readouterr().out) == {
        "passed": 1,
        "failed": 0,
        "not applicable": 0,
        "fixtures": [{"file": file, "test_id": test_id, "outcome": "passed", "problems": []}],
    }
