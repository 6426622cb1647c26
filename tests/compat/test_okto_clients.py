"""Clients of okto-nexus against a hub that has the store that they knew."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.acceptance import hub
from tests.acceptance.processes import nexus
from tests.compat import okto
from tests.compat.test_okto_import import played
from tests.conftest import Call

CLIENT = Path(__file__).with_name("okto_client.py")


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize("version", [pytest.param("0.0.1", marks=pytest.mark.long), "0.3.1"])
def test_the_documented_first_turn_holds(version: str, tmp_path: Path) -> None:
    day = played(version, tmp_path, 3)
    home = tmp_path / "home"
    imported = nexus(home, "import", "okto", str(day.home), "--yes")
    assert imported.returncode == 0, imported.stderr
    with hub.serving(home) as served:
        command = [okto.python(version), "-P", CLIENT, f"{served.url}/mcp", day.keys["bob"], day.project, version]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    assert said["agent_whoami"]["data"]["agent_id"] == "bob"
    assert "Hello" in {message["subject"] for message in said["inbox_history"]["data"]["messages"]}
    assert said["handoff_get"]["data"]["status"] == "COMPLETED"
    assert "Done here." in said["handoff_get"]["data"]["result"]


def test_a_workspace_may_be_named_by_its_id(call: Call, refused: Call, project: str, workspace: str, ann: str) -> None:
    target = {"strategy": "direct", "agent_id": ann}
    made = call("handoff_create", workspace_id=workspace, from_agent_id=ann, target=target, visibility="public")
    both = {"workspace_id": workspace, "project_root": project}
    assert [row["handoff_id"] for row in call("handoff_list_available", agent_id=ann, **both)["handoffs"]] == [
        made["handoff_id"]
    ]
    elsewhere = {"workspace_id": workspace, "project_root": str(Path(project).parent)}
    assert refused("handoff_list_available", agent_id=ann, **elsewhere)["code"] == "WORKSPACE_MISMATCH"
    assert refused("handoff_list_available", agent_id=ann, workspace_id="0" * 64)["code"] == "NOT_FOUND"
    assert refused("handoff_list_available", agent_id=ann, workspace_id=7)["code"] == "WORKSPACE_REQUIRED"


def test_who_verifies_may_be_named_as_there(call: Call, refused: Call, project: str, ann: str) -> None:
    offer = {"project_root": project, "from_agent_id": ann, "visibility": "public", "target": {"strategy": "broadcast"}}
    made = call("handoff_create", **offer, verify_by={"kind": "agent", "agent_id": ann})
    got = call("handoff_get", project_root=project, handoff_id=made["handoff_id"], agent_id=ann)
    assert got["verifier"] == {"agent_id": ann}
    assert refused("handoff_create", **offer, verify_by={"kind": "odd"})["code"] == "VALIDATION_ERROR"


def test_what_is_unknown_in_both_is_refused(refused: Call, project: str, ann: str) -> None:
    assert refused("inbox_pull", agent_id=ann, profil="full")["code"] == "VALIDATION_ERROR"
    assert refused("inbox_count", agent_id=ann, profile="full")["code"] == "VALIDATION_ERROR"


def _mail(call: Call, project: str, body: str = "b" * 500) -> None:
    call("agent_register", agent_id="bob")
    to_bob = {"strategy": "direct", "agent_id": "bob"}
    call("message_create", project_root=project, from_agent_id="ann", subject="s", body=body, target=to_bob)


def test_a_profile_trims_messages(call: Call, refused: Call, project: str, ann: str) -> None:
    _mail(call, project, body="ä" * 500)
    (whole,) = call("inbox_peek", agent_id="bob")["messages"]
    full = call("inbox_peek", agent_id="bob", profile="full")
    assert (full["messages"], full["omitted_count"], full["truncated"]) == ([whole], 0, False)
    default = call("inbox_peek", agent_id="bob", profile=" Default ")
    (trimmed,) = default["messages"]
    assert trimmed["body"] == whole["body"] and "artifacts" not in trimmed
    assert default["omitted_count"] == len(whole) - len(trimmed)
    summary = call("inbox_pull", agent_id="bob", profile="summary")
    (row,) = summary["messages"]
    assert row.keys() == {"message_id", "from_agent_id", "subject", "created_at", "status", "follow_up"}
    assert row["follow_up"] == {"rel": "read_full", "target_ref": "inbox_peek", "hint": "profile=full"}
    written = json.dumps(summary["messages"], ensure_ascii=False, separators=(",", ":"))
    assert summary["payload_bytes"] == len(written.encode())
    for odd in ("odd", 7, ["full"]):
        assert refused("inbox_peek", agent_id="bob", profile=odd)["details"]["supported"][0] == "default"


def test_bodies_and_paths_are_left_out_where_asked(call: Call, refused: Call, project: str, ann: str) -> None:
    _mail(call, project, body="ä" * 500)
    (row,) = call("inbox_peek", agent_id="bob", include_bodies=False)["messages"]
    assert (row["body_preview"], row["body_bytes"], "body" in row) == ("ä" * 200, 1000, False)
    (row,) = call("inbox_peek", agent_id="bob", include_bodies=True)["messages"]
    assert row["body"] == "ä" * 500
    for include, has in ((True, True), (False, False)):
        rows = call("workspace_list", include_paths=include)["workspaces"]
        assert [("root_realpath" in row) for row in rows] == [has]
    assert refused("workspace_list", include_paths="yes")["code"] == "VALIDATION_ERROR"
    assert refused("inbox_peek", agent_id="bob", include_bodies=1)["code"] == "VALIDATION_ERROR"


def test_a_profile_trims_events(call: Call, project: str, ann: str) -> None:
    _mail(call, project)
    target = {"strategy": "direct", "agent_id": ann}
    call("handoff_create", project_root=project, from_agent_id=ann, target=target, visibility="public")
    log: Call = lambda stream, **more: call("event_get", project_root=project, agent_id=ann, stream=stream, **more)  # noqa: E731
    (whole,) = log("handoff")["events"]
    (default,) = log("handoff", profile="default")["events"]
    assert default["handoff_id"] == whole["handoff_id"] and "handoff_id" in whole["payload"]
    assert not default.get("payload", {}).keys() & {"handoff_id", "task_id"} and "task_id" not in default
    summary = log("handoff", profile="summary")
    (row,) = summary["events"]
    assert row.keys() == {"event_id", "type", "actor_agent_id", "created_at", "stream", "follow_up"}
    assert not summary["truncated"]
    waited = call(
        "event_wait", project_root=project, agent_id=ann, stream="handoff", profile="summary", timeout_seconds=1
    )
    assert waited["events"] == summary["events"]


def test_old_ids_in_what_is_no_parameter_are_not_looked_up(refused: Call, ann: str) -> None:
    ids = [f"hof_{number:012x}4{'0' * 19}" for number in range(300_000)]
    lists = {f"more_{start}": ids[start : start + 1000] for start in range(0, len(ids), 1000)}
    assert refused("inbox_pull", agent_id=ann, **lists)["code"] == "VALIDATION_ERROR"
