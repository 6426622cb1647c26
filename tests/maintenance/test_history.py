"""`nexus export`: the history of a workspace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordination.paths import workspace_id_of
from nexus.maintenance import history
from tests.maintenance.conftest import Home


@pytest.fixture(scope="module")
def exported(written: Path) -> str:
    """The history of the scenario's first workspace."""
    done = Home(written).process("export", "--workspace-id", workspace_id_of(f"{written}-project"))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def lines(exported: str) -> list[str]:
    """The same, by line, for a test to change."""
    return exported.split("\n")[:-1]


def test_it_holds_every_kind_of_row_of_the_workspace_in_order(lines: list[str]) -> None:
    records = [json.loads(line) for line in lines]
    kinds = [record["kind"] for record in records]

    assert list(dict.fromkeys(kinds)) == ["export", *history.kinds(), "end"]
    assert [record["row"]["agent_id"] for record in records if record["kind"] == "agent"] == ["ana", "bob", "cleo"]
    assert {record["row"]["status"] for record in records if record["kind"] == "delivery"} == {
        "unread",
        "delivered",
        "read",
    }
    assert len({record["row"]["status"] for record in records if record["kind"] == "handoff"}) == 5
    ids = [record["row"]["event_id"] for record in records if record["kind"] == "event"]
    assert ids == sorted(ids)
    assert records[-1]["rows"] == len(lines) - 2


@pytest.mark.usefixtures("starts_processes")
def test_it_says_the_same_every_time(home: Home, written: Path, exported: str, tmp_path: Path) -> None:
    arguments = ("--project", f"{written}-project", "--output", str(tmp_path / "again"))

    assert home.process("export", *arguments).returncode == 0
    assert (tmp_path / "again").read_text() == exported
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o600
    assert "exists already" in home.process("export", *arguments).stderr


def test_it_keeps_secrets_and_other_workspaces_to_itself(home: Home, exported: str) -> None:
    hashes = [row[0] for row in home.sql("SELECT secret_hash FROM sessions")]

    assert len(hashes) == 3
    assert not any(secret in exported for secret in hashes)
    assert "Elsewhere" not in exported
    assert "stranger" not in exported


@pytest.mark.usefixtures("starts_processes")
def test_it_refuses_the_history_of_a_workspace_that_is_not_there(home: Home) -> None:
    assert "not in this store" in home.process("export", "--workspace-id", "none").stderr
