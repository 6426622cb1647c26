"""Workspaces: identity is the real directory, and nothing crosses from one to another unasked."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import time_machine

from nexus.core.config import parse
from nexus.core.operations.errors import NexusError
from tests.conftest import Call

NEW, LATER = "2026-01-01T00:00:00.000000Z", "2026-01-02T00:00:00.000000Z"


def test_it_identifies_a_workspace_by_the_hash_of_its_real_path(call: Call, project: str) -> None:
    found = call("workspace_resolve", project_root=project)
    assert found["workspace_id"] == hashlib.sha256(os.path.realpath(project).encode()).hexdigest()
    assert found["root_realpath"] == os.path.realpath(project)
    assert set(found) == {"workspace_id", "display_name", "root_realpath", "created_at", "last_seen_at"}


def test_it_sees_one_workspace_behind_every_path_to_it(call: Call, project: str, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(project)
    one = call("workspace_resolve", project_root=project)
    for alias in (str(link), f"{project}/", f"{project}/../project", f"{tmp_path}//project/."):
        assert call("workspace_resolve", project_root=alias)["workspace_id"] == one["workspace_id"]
    assert len(call("workspace_list")["workspaces"]) == 1


def test_it_updates_a_known_workspace_and_keeps_what_was_left_out(call: Call, project: str) -> None:
    with time_machine.travel(NEW, tick=False):
        call("workspace_resolve", project_root=project, display_name="Shop")
    with time_machine.travel(LATER, tick=False):
        again = call("workspace_resolve", project_root=project)
    assert (again["display_name"], again["created_at"], again["last_seen_at"]) == ("Shop", NEW, LATER)
    assert call("workspace_resolve", project_root=project, display_name="Store")["display_name"] == "Store"


def test_it_lists_all_workspaces_in_the_order_they_were_made(call: Call, tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ("c", "a", "b")]
    for root in roots:
        root.mkdir()
        call("workspace_resolve", project_root=str(root))
    listed = call("workspace_list")["workspaces"]
    assert [row["root_realpath"] for row in listed] == [str(root) for root in roots]


@pytest.mark.parametrize("root", ["", "  ", "relative/path", ".", "~"])
def test_it_wants_an_absolute_path(refused: Call, root: str) -> None:
    assert refused("workspace_resolve", project_root=root)["code"] == "VALIDATION_ERROR"


def test_it_wants_a_path_at_all(refused: Call) -> None:
    error = refused("workspace_resolve")
    assert (error["code"], error["details"]) == ("VALIDATION_ERROR", {"field": "project_root"})


def test_it_refuses_a_path_that_leads_to_no_directory(refused: Call, call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("missing", "file", "broken", "loop", "file/below", "x" * 300):
        assert refused("workspace_resolve", project_root=str(tmp_path / name))["code"] == "WORKSPACE_UNRESOLVED"
    assert call("workspace_list")["workspaces"] == []


IN_CONTAINER = ["/workspaces/shop", "/workspaces/shop/", "/workspaces/shop/src/..", "/workspaces/other/shop"]


@pytest.mark.parametrize("given", IN_CONTAINER)
def test_it_maps_a_path_of_a_container(
    call: Call, refused: Call, configure: Callable[..., None], tmp_path: Path, given: str
) -> None:
    root = tmp_path / "shop"
    (root / "src").mkdir(parents=True)
    (root / "out.txt").write_text("four")
    error = refused("workspace_resolve", project_root=given)
    assert (error["code"], "project_paths" in error["message"]) == ("WORKSPACE_UNRESOLVED", True)
    configure(project_paths=f"/workspaces=/nowhere, /workspaces/shop = {root}/,/workspaces/other={tmp_path}")
    resolved = [call("workspace_resolve", project_root=each)["workspace_id"] for each in (given, str(root))]
    assert resolved[0] == resolved[1]
    for each in (given.replace("/shop", "//shop"), given.replace("/shop", "/./shop"), f"{given}/."):
        assert call("workspace_resolve", project_root=each)["workspace_id"] == resolved[0]
    for path in ("out.txt", "/workspaces/shop/out.txt", str(root / "out.txt")):
        assert call("artifact_put", project_root=given, artifact_type="file", path=path)["size_bytes"] == 4
    assert refused("workspace_resolve", project_root="/workspaces/shopping")["code"] == "WORKSPACE_UNRESOLVED"


@pytest.mark.parametrize("text", ["/a", "/a=b", "a=/b", "/a=/b,", "=/b"])
def test_it_refuses_what_is_no_mapping(text: str) -> None:
    with pytest.raises(NexusError, match="pairs of absolute paths"):
        parse("project_paths", text, "--project-paths")


def test_it_refuses_a_link_to_a_name_that_no_transport_can_carry(refused: Call, tmp_path: Path) -> None:
    odd = tmp_path / "\udcff"  # how a byte that is not UTF-8 reads in a name
    odd.mkdir()
    (tmp_path / "link").symlink_to(odd)
    assert refused("workspace_resolve", project_root=str(tmp_path / "link"))["code"] == "WORKSPACE_UNRESOLVED"


@pytest.mark.parametrize("name", ["channel_list", "channel_create", "artifact_put", "artifact_get", "event_get"])
def test_it_tells_no_workspace_from_one_that_is_not_there(refused: Call, name: str) -> None:
    more = {
        "channel_create": {"name": "n"},
        "artifact_put": {"artifact_type": "text", "content": "c"},
        "artifact_get": {"artifact_id": "a"},
        "event_get": {"agent_id": "a", "stream": "agent"},
    }.get(name, {})
    assert refused(name, **more)["code"] == "WORKSPACE_REQUIRED"
    assert refused(name, project_root=None, **more)["code"] == "WORKSPACE_REQUIRED"
    assert refused(name, project_root=" ", **more)["code"] == "WORKSPACE_REQUIRED"
    assert refused(name, project_root="/no/such/place", **more)["code"] == "WORKSPACE_UNRESOLVED"
    assert refused(name, project_root=7, **more)["code"] == "VALIDATION_ERROR"


def test_it_makes_no_workspace_when_something_is_only_read(call: Call, project: str) -> None:
    call("event_get", project_root=project, agent_id="ann", stream="workspace")
    call("event_cursor", project_root=project, agent_id="ann", stream="workspace")
    assert call("workspace_list")["workspaces"] == []
