"""Channels: labels, unique by name in a workspace; `general` is always there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Call


def test_it_creates_a_channel_once(call: Call, project: str, workspace: str) -> None:
    first = call("channel_create", project_root=project, name=" design  ")
    assert first["created"] is True
    assert first["channel"]["name"] == "design"
    assert first["channel"]["workspace_id"] == workspace
    assert set(first["channel"]) == {"channel_id", "workspace_id", "name", "created_at"}
    assert call("channel_create", project_root=project, name="design") == {**first, "created": False}


def test_it_seeds_general_alone_and_once(call: Call, project: str) -> None:
    once, twice = (call("channel_list", project_root=project)["channels"] for _ in range(2))
    assert once == twice
    assert [channel["name"] for channel in once] == ["general"]


def test_it_lists_the_workspaces_own_channels_in_the_order_of_their_creation(
    call: Call, project: str, tmp_path: Path
) -> None:
    call("channel_create", project_root=project, name="zoo")
    call("channel_create", project_root=str(tmp_path), name="zoo")
    call("channel_create", project_root=str(tmp_path), name="Zoo")
    assert [channel["name"] for channel in call("channel_list", project_root=project)["channels"]] == ["zoo", "general"]
    there = call("channel_list", project_root=str(tmp_path))["channels"]
    assert [channel["name"] for channel in there] == ["zoo", "Zoo", "general"]


def test_it_measures_a_name_trimmed_and_in_characters(call: Call, refused: Call, project: str) -> None:
    assert call("channel_create", project_root=project, name="  " + "ü" * 64 + " ")["channel"]["name"] == "ü" * 64
    assert refused("channel_create", project_root=project, name="x" * 65)["code"] == "VALIDATION_ERROR"


@pytest.mark.parametrize("name", ["", "   ", "a\nb", "a\tb", "a\x7fb", "a\x85b", "a\x00", None, 7, ["a"]])
def test_it_refuses_a_name_that_is_none(call: Call, refused: Call, project: str, name: Any) -> None:
    assert refused("channel_create", project_root=project, name=name)["code"] == "VALIDATION_ERROR"
    assert len(call("channel_list", project_root=project)["channels"]) == 1
