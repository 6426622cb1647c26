"""A project whose files agents reserve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.reservations.selectors import compared_by
from nexus.reservations.toolset import FILES


class Project:
    """A project directory, and the calls about its files."""

    def __init__(self, root: Path, operator: str | None = None) -> None:
        self.root, self.operator = root, operator

    def body(self, verb: str, /, **arguments: Any) -> dict[str, Any]:
        """The envelope of a call."""
        named = {"project_root": str(self.root), **arguments} if verb != "end" else arguments
        operator = "ada" if verb in ("end", "list") else self.operator
        return dispatch.run(FILES, Caller("test", operator=operator, connection="test:files"), f"files_{verb}", named)

    def call(self, verb: str, /, **arguments: Any) -> Any:
        """The data; the test fails on an error."""
        body = self.body(verb, **arguments)
        assert body["ok"], body
        return body["data"]

    def refused(self, verb: str, /, **arguments: Any) -> dict[str, Any]:
        """The error of a call that must fail."""
        body = self.body(verb, **arguments)
        assert not body["ok"], body
        error: dict[str, Any] = body["error"]
        return error

    def reserve(self, agent: str, *paths: str, **more: Any) -> list[str]:
        """The ids of what an agent reserved."""
        data = self.call("reserve", agent_id=agent, paths=list(paths), **more)
        return [row["reservation_id"] for row in data["reservations"]]

    def in_the_way(self, agent: str, *paths: str, **more: Any) -> list[tuple[str, str]]:
        """Of a reservation that is refused, who has which pattern."""
        error = self.refused("reserve", agent_id=agent, paths=list(paths), **more)
        assert error["code"] == "FILES_RESERVED", error
        return [(row["held"]["agent_id"], row["held"]["pattern"]) for row in error["details"]["refused"]]

    def held(self, path: str = "**") -> list[tuple[str, str]]:
        """Who has which pattern."""
        return [(row["agent_id"], row["pattern"]) for row in self.call("who", path=path)["held"]]


@pytest.fixture(autouse=True)
def compared() -> None:
    """Nobody has compared anything yet."""
    compared_by.cache_clear()


@pytest.fixture
def shop(db: None, tmp_path: Path) -> Project:
    """An empty project."""
    root = tmp_path / "shop"
    root.mkdir()
    return Project(root.resolve())
