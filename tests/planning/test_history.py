"""A workspace's plan, tasks and cycles in `nexus export` and `nexus replay`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps

from nexus.planning.maintenance import KINDS
from nexus.planning.models import MirroredFile
from tests.acceptance.processes import Raw, nexus
from tests.conftest import Furnish

READS = ("plan_status", "task_list", "history_search")
FILES = ("history.json", "state/plan.json", "state/tasks.json")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty project."""
    root = tmp_path.resolve() / "planned"
    root.mkdir()
    return root


def call(agent: Raw, root: Path, tool: str, **arguments: Any) -> Any:
    body = agent.call(tool, {"project_root": str(root), **arguments})
    assert body["ok"], body
    return body["data"]


def told(agent: Raw, root: Path) -> list[Any]:
    return [call(agent, root, tool) for tool in READS]


def contents(root: Path) -> list[bytes]:
    return [(root / ".nexus" / name).read_bytes() for name in FILES]


@pytest.mark.usefixtures("starts_processes")
def test_it_brings_plan_tasks_and_cycles_back(tmp_path: Path, root: Path, furnish: Furnish) -> None:
    first, second, third = (furnish(tmp_path / name) for name in ("first", "second", "third"))
    with Raw(first, "--toolsets", "planning") as agent:
        agent.greet()
        for topic in ("Reading", "Writing"):
            call(agent, root, "plan_start", topic=topic, issues=["Which?", "How?"], research_summary="")
            how = {"how_agents": ["architect"], "how_summary": {"architect": "This."}}
            call(agent, root, "plan_decide", issue_id=1, summary=f"{topic}.", **how)
            call(agent, root, "task_add", title="Write", context="Why.", goal=topic, decisions=["So."])
            call(agent, root, "task_add", title="Test", context="Why.", deps=[1], owner="tester", plan_issue=1)
            call(agent, root, "task_update", id=1, status="completed")
            if topic == "Reading":
                call(agent, root, "task_close")
        before = told(agent, root)
    written = contents(root)
    file = tmp_path / "history.ndjson"
    exported = nexus(first, "export", "--project", str(root), "--output", str(file))
    assert exported.returncode == 0, exported.stderr

    assert nexus(second, "replay", str(file)).returncode == 0
    with Raw(second, "--toolsets", "planning") as agent:
        agent.greet()
        assert told(agent, root) == before
        assert contents(root) == written  # and nobody took them for somebody else's
    again = nexus(second, "export", "--project", str(root))
    assert again.stdout == file.read_text()

    shutil.rmtree(root / ".nexus")
    assert nexus(third, "replay", str(file)).returncode == 0
    with Raw(third, "--toolsets", "planning") as agent:
        agent.greet()
        assert told(agent, root) == before
        assert call(agent, root, "task_add", title="Ship", context="Why.", deps=[2])["task"]["id"] == 3
    history, plan, tasks = contents(root)
    assert [history, plan] == written[:2]
    assert [task["id"] for task in json.loads(tasks)["tasks"]] == [1, 2, 3]


def test_every_table_is_history_but_what_a_machine_knows_of_its_own_files() -> None:
    kept = {kind.model for kind in KINDS}
    assert {model for model in apps.get_app_config("planning").get_models() if model not in kept} == {MirroredFile}
