"""Artifacts: inline or by path, never outside the workspace, and never the file's bytes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coordination.toolset import run
from nexus.core.operations.caller import Caller
from tests.conftest import Call


@pytest.fixture
def put(call: Call, project: str) -> Call:
    def ok(artifact_type: str = "text", **arguments: Any) -> dict[str, Any]:
        return call("artifact_put", project_root=project, artifact_type=artifact_type, **arguments)

    return ok


@pytest.fixture
def refuse(refused: Call, project: str, call: Call) -> Callable[..., str]:
    """The code of a put that must fail; it must leave nothing behind."""

    def code(artifact_type: Any = "text", **arguments: Any) -> str:
        error = refused("artifact_put", project_root=project, artifact_type=artifact_type, **arguments)
        assert not call("event_get", project_root=project, agent_id="a", stream="workspace")["events"]
        return str(error["code"])

    return code


def test_it_round_trips_inline_content(call: Call, put: Call, project: str, workspace: str) -> None:
    made = put("Markdown", name="notes", content="# Grüße\n", metadata={"by": "ann"})
    assert made["artifact_id"].startswith("art")
    assert made == {
        "artifact_id": made["artifact_id"],
        "workspace_id": workspace,
        "artifact_type": "markdown",
        "stored": "inline",
        "size_bytes": 10,
        "created_at": made["created_at"],
    }
    got = call("artifact_get", project_root=project, artifact_id=made["artifact_id"])
    assert got == {**made, "name": "notes", "content": "# Grüße\n", "metadata": {"by": "ann"}}


def test_it_gives_the_path_and_never_the_bytes_of_a_file(call: Call, put: Call, project: str) -> None:
    Path(project, "notes.md").write_text("secret bytes")
    made = put("file", path="notes.md")
    assert (made["stored"], made["size_bytes"], made["path"]) == ("path", 12, "notes.md")
    got = call("artifact_get", project_root=project, artifact_id=made["artifact_id"])
    assert got["path"] == "notes.md"
    assert "content" not in got
    assert "secret" not in str(got)


def test_it_keeps_the_content_when_both_are_given(call: Call, put: Call, project: str) -> None:
    made = put(path="a/b.txt", content="inline")
    assert (made["stored"], made["size_bytes"]) == ("inline", 6)
    assert "path" not in made


def test_it_logs_the_artifact_in_public(call: Call, put: Call, project: str) -> None:
    made = put(name="notes", content="the content")
    events = call("event_get", project_root=project, agent_id="anyone", stream="workspace")["events"]
    assert [(event["type"], event["payload"]["artifact_id"]) for event in events] == [
        ("artifact.created", made["artifact_id"])
    ]
    assert "the content" not in str(events)


def test_it_names_the_agent_of_a_bound_connection_as_the_actor(call: Call, project: str) -> None:
    arguments = {"project_root": project, "artifact_type": "text", "content": "c"}
    assert run(Caller("test", agent_id="ann"), "artifact_put", arguments)["ok"]
    events = call("event_get", project_root=project, agent_id="bob", stream="workspace")["events"]
    assert [event["actor_agent_id"] for event in events] == ["ann"]


@pytest.mark.parametrize("kind", ["image", "", " ", "tex t", "json\x00", None, 7])
def test_it_knows_four_types(refuse: Callable[..., str], kind: Any) -> None:
    assert refuse(kind, content="{}") == "VALIDATION_ERROR"


@pytest.mark.parametrize("kind", ["file", "TEXT", " Json ", "markDown"])
def test_it_takes_a_type_in_any_case(put: Call, kind: str) -> None:
    assert put(kind, content="{}")["artifact_type"] == kind.strip().lower()


def test_it_wants_a_path_or_content(refuse: Callable[..., str]) -> None:
    assert refuse() == "VALIDATION_ERROR"
    assert refuse(content=7) == "VALIDATION_ERROR"
    assert refuse(content={"a": 1}) == "VALIDATION_ERROR"
    assert refuse(path="") == "VALIDATION_ERROR"


@pytest.mark.parametrize("content", ["", "{", "{'a': 1}", "NaN", "[Infinity]", "-Infinity", "[" * 60_000, "{} {}"])
def test_it_refuses_malformed_json(refuse: Callable[..., str], content: str) -> None:
    assert refuse("json", content=content) == "VALIDATION_ERROR"


@pytest.mark.parametrize("content", ["null", "[1, 2]", '"text"', "1e999", "9" * 5000, '{"a": {"a": 1}}', " 0 "])
def test_it_takes_any_well_formed_json_as_it_is_written(call: Call, put: Call, project: str, content: str) -> None:
    made = put("json", content=content)
    assert call("artifact_get", project_root=project, artifact_id=made["artifact_id"])["content"] == content


def test_it_measures_content_in_bytes_inclusively(put: Call, refuse: Callable[..., str]) -> None:
    assert refuse(content="ü" * 32_768 + "x") == "CONTENT_TOO_LARGE"
    assert refuse("json", content="[" * 65_537) == "CONTENT_TOO_LARGE"
    assert refuse(content="c", metadata=["x" * 65_536]) == "CONTENT_TOO_LARGE"
    assert put(content="ü" * 32_768)["size_bytes"] == 65_536


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "link/x", "link", "..", "sub/../../project2/x"])
def test_it_refuses_a_path_that_leaves_the_workspace(
    refuse: Callable[..., str], project: str, tmp_path: Path, path: str
) -> None:
    (tmp_path / "project2").mkdir()
    Path(project, "link").symlink_to(tmp_path)
    assert refuse("file", path=path) == "PATH_OUTSIDE_WORKSPACE"
    assert refuse("text", path=path, content="c") == "PATH_OUTSIDE_WORKSPACE"


def test_it_takes_a_path_that_stays_inside(put: Call, project: str) -> None:
    Path(project, "sub").mkdir()
    Path(project, "sub", "f").write_text("12345")
    Path(project, "inner").symlink_to(Path(project, "sub"))
    for path in ("sub/f", "sub/../sub/f", "inner/f", f"{project}/sub/f"):
        assert put("file", path=path)["size_bytes"] == 5
    assert put("file", path="not/there/yet")["size_bytes"] == 0
    assert put("file", path=".")["size_bytes"] == 0  # the root itself is inside
    assert put("file", path="x" * 300)["size_bytes"] == 0


@pytest.mark.parametrize("transport", ["mcp", "rest", "rpc", "stdio", "relay"])
def test_it_measures_no_file_for_who_is_bound_by_a_key(db: None, tmp_path: Path, project: str, transport: str) -> None:
    (tmp_path / "shadow").write_text("root:x")
    Path(project, "notes.md").write_text("notes")

    def size(caller: Caller, root: str, path: str) -> int:
        arguments = {"project_root": root, "artifact_type": "file", "path": path}
        answer = run(caller, "artifact_put", arguments)
        known = run(caller, "artifact_get", {"project_root": root, "artifact_id": answer["data"]["artifact_id"]})
        assert known["data"]["size_bytes"] == answer["data"]["size_bytes"]
        found: int = answer["data"]["size_bytes"]
        return found

    by_key = Caller(transport, agent_id="ann")
    assert size(by_key, str(tmp_path), "shadow") == size(by_key, project, "notes.md") == 0
    for caller in (Caller("stdio"), Caller("relay"), Caller(transport, operator="olga")):
        assert size(caller, project, "notes.md") == 5


def test_it_does_not_tell_elsewhere_from_nowhere(refused: Call, put: Call, project: str, tmp_path: Path) -> None:
    made = put(content="c")
    elsewhere = refused("artifact_get", project_root=str(tmp_path), artifact_id=made["artifact_id"])
    nowhere = refused("artifact_get", project_root=project, artifact_id="art_none")
    assert elsewhere["code"] == nowhere["code"] == "NOT_FOUND"
    assert refused("artifact_get", project_root=project)["code"] == "VALIDATION_ERROR"
