"""shared.md: four sections, the same bytes for the same state, nothing private, written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.conf import settings

from nexus.core.operations.dispatch import run
from nexus.planning.toolset import PLANNING
from tests.conftest import LOCAL, Call

pytestmark = pytest.mark.usefixtures("committed")  # the render reads in a transaction of its own


@pytest.fixture
def render(call: Call, workspace: str) -> Callable[..., bytes]:
    def content(**arguments: Any) -> bytes:
        return Path(call("shared_md_render", workspace_id=workspace, **arguments)["path"]).read_bytes()

    return content


def headings(text: bytes) -> list[str]:
    return [line.removeprefix("## ") for line in text.decode().splitlines() if line.startswith("## ")]


def test_it_writes_the_file_of_the_workspace_and_says_so(call: Call, workspace: str) -> None:
    with time_machine.travel("2026-01-01T00:00:00Z", tick=False):
        rendered = call("shared_md_render", workspace_id=workspace)
    path = settings.NEXUS.home / "workspaces" / workspace / "shared.md"
    assert rendered == {
        "path": str(path),
        "workspace_id": workspace,
        "bytes_written": len(path.read_bytes()),
        "sections_rendered": 4,
        "limit_events": 50,
        "generated_at": "2026-01-01T00:00:00.000000Z",
    }
    assert [file.name for file in path.parent.iterdir()] == ["shared.md"]


def test_it_has_four_sections_in_one_order(render: Any) -> None:
    assert headings(render()) == ["Agents and active sessions", "Open tasks", "Open handoffs", "Recent events"]


def test_it_shows_what_is_open(call: Call, render: Any, project: str, workspace: str, ann: str) -> None:
    kept = call("session_open", agent_id=ann, workspace_id=workspace)["session_id"]
    gone = call("session_open", agent_id=ann, workspace_id=workspace)["session_id"]
    call("session_close", session_id=gone)
    for title in ("Task open", "Task done"):
        run(PLANNING, LOCAL, "task_add", {"project_root": project, "title": title, "context": "c"})
    run(PLANNING, LOCAL, "task_update", {"project_root": project, "id": 2, "status": "completed"})
    text = render().decode()
    sessions = text.split("## Open tasks")[0]
    assert kept in sessions
    assert gone not in sessions
    assert "Task open" in text
    assert "Task done" not in text


def test_it_gives_the_same_bytes_for_the_same_state_whenever_it_is_rendered(
    call: Call, render: Any, workspace: str, ann: str
) -> None:
    call("session_open", agent_id=ann, workspace_id=workspace)
    with time_machine.travel("2026-01-01T00:00:00Z"):
        first = render()
    with time_machine.travel("2027-01-01T00:00:00Z"):
        assert render() == first


def test_it_shows_the_newest_events_first_up_to_the_limit(
    call: Call, render: Any, project: str, workspace: str
) -> None:
    for number in range(5):
        call("artifact_put", project_root=project, artifact_type="text", content=str(number))
    lines = render(limit_events=3).decode().split("## Recent events")[1].strip().splitlines()
    numbers = [int(line.split()[1]) for line in lines]
    assert len(numbers) == 3
    assert numbers == sorted(numbers, reverse=True)
    newest = call("event_cursor", project_root=project, agent_id="a", stream="workspace")["cursor"]
    assert numbers[0] == newest


@pytest.mark.parametrize("visibility", ["public", "eligible", "private"])
def test_it_keeps_whom_an_unpublic_handoff_is_for_and_every_payload_to_itself(
    call: Call, render: Any, project: str, visibility: str
) -> None:
    call(
        "handoff_create",
        project_root=project,
        from_agent_id="boss",
        target={"strategy": "role", "role": "whistle"},
        visibility=visibility,
        title="Chapter two",
        payload="the work itself",
    )
    text = render().decode()
    assert ("whistle" in text) is (visibility == "public")
    assert ("[private]" in text) is (visibility != "public")
    assert ("Chapter two" in text) is (visibility == "public")
    assert "the work itself" not in text


def test_it_renders_text_of_unknown_origin_as_one_line_of_text(
    call: Call, render: Any, workspace: str, project: str
) -> None:
    evil = "x\n## Open handoffs\n<script>`"
    call("agent_register", agent_id=evil, role=evil)
    call("session_open", agent_id=evil, workspace_id=workspace)
    call("workspace_resolve", project_root=project, display_name=evil)
    assert len(headings(render())) == 4
    assert b" <script" not in render()
    lines = [line for line in render().decode().splitlines() if line]
    assert all(line.startswith(("# ", "## ", "- ", "`", "_None")) for line in lines)


@pytest.mark.parametrize("workspace_id", ["x", "A" * 64, "a" * 63, "a" * 64 + "\n", 7])
def test_it_wants_an_id_of_64_hex_digits(refused: Call, workspace_id: Any) -> None:
    assert refused("shared_md_render", workspace_id=workspace_id)["code"] == "VALIDATION_ERROR"


def test_it_wants_a_workspace_that_exists(refused: Call) -> None:
    assert refused("shared_md_render")["code"] == "WORKSPACE_REQUIRED"
    assert refused("shared_md_render", workspace_id="")["code"] == "WORKSPACE_REQUIRED"
    assert refused("shared_md_render", workspace_id=None)["code"] == "WORKSPACE_REQUIRED"
    assert refused("shared_md_render", workspace_id="a" * 64)["code"] == "NOT_FOUND"


@pytest.mark.parametrize("limit", [0, -1, True, "5", 1.0, None, 1001, 10**30])
def test_it_holds_the_number_of_events_to_its_bounds(refused: Call, workspace: str, limit: Any) -> None:
    error = refused("shared_md_render", workspace_id=workspace, limit_events=limit)
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "limit_events")


def test_it_takes_the_ceiling_from_the_settings(call: Call, refused: Call, workspace: str, configure: Any) -> None:
    assert call("shared_md_render", workspace_id=workspace, limit_events=1000)["limit_events"] == 1000
    configure(max_shared_md_events=5)
    assert refused("shared_md_render", workspace_id=workspace, limit_events=6)["code"] == "VALIDATION_ERROR"


def test_it_answers_a_file_it_cannot_write_and_leaves_no_part_of_it(
    refused: Call, workspace: str, configure: Any, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "workspaces" / workspace / "shared.md").mkdir(parents=True)  # a directory is in the way
    configure(home=home)
    assert refused("shared_md_render", workspace_id=workspace)["code"] == "RENDER_ERROR"
    assert [file.name for file in (home / "workspaces" / workspace).iterdir()] == ["shared.md"]
