"""A workspace's plan, tasks and cycles in `nexus export` and `nexus replay`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from django.apps import apps
from django.core.management import call_command
from django.db import transaction

from coordination.paths import workspace_id_of
from nexus.maintenance.history import export
from nexus.planning.maintenance import KINDS
from nexus.planning.models import MirroredFile
from tests.planning.conftest import Project

READS = ("plan_status", "task_list", "history_search")
FILES = ("history.json", "state/plan.json", "state/tasks.json")


@contextmanager
def a_store_of_its_own() -> Iterator[None]:
    """What is written is gone afterwards; the files of the project stay."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def told(nexus: Project) -> list[Any]:
    return [nexus.call(tool) for tool in READS]


def contents(nexus: Project) -> list[bytes]:
    return [(nexus.root / ".nexus" / name).read_bytes() for name in FILES]


def exported(nexus: Project) -> str:
    return "".join(f"{line}\n" for line in export(workspace_id_of(str(nexus.root))))


def replay(history: Path) -> None:
    call_command("replay", str(history), stdout=StringIO())


def test_it_brings_plan_tasks_and_cycles_back(nexus: Project, tmp_path: Path) -> None:
    history = tmp_path / "history.ndjson"
    with a_store_of_its_own():
        for topic in ("Reading", "Writing"):
            nexus.call("plan_start", topic=topic, issues=["Which?", "How?"], research_summary="")
            how: dict[str, Any] = {"how_agents": ["architect"], "how_summary": {"architect": "This."}}
            nexus.call("plan_decide", issue_id=1, summary=f"{topic}.", **how)
            nexus.task("Write", goal=topic, decisions=["So."])
            nexus.task("Test", deps=[1], owner="tester", plan_issue=1)
            nexus.call("task_update", id=1, status="completed")
            if topic == "Reading":
                nexus.call("task_close")
        before, written = told(nexus), contents(nexus)
        history.write_text(exported(nexus))

    with a_store_of_its_own():
        replay(history)
        assert told(nexus) == before
        assert contents(nexus) == written  # and nobody took them for somebody else's
        assert exported(nexus) == history.read_text()

    shutil.rmtree(nexus.root / ".nexus")
    replay(history)
    assert told(nexus) == before
    assert nexus.task("Ship", deps=[2])["id"] == 3
    cycles, plan, tasks = contents(nexus)
    assert [cycles, plan] == written[:2]
    assert [task["id"] for task in json.loads(tasks)["tasks"]] == [1, 2, 3]


def test_every_table_is_history_but_what_a_machine_knows_of_its_own_files() -> None:
    kept = {kind.model for kind in KINDS}
    assert {model for model in apps.get_app_config("planning").get_models() if model not in kept} == {MirroredFile}
