"""`nexus export` and `nexus replay`: a history there and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
from django.db import transaction

from coordination.models import Agent, Event, Session, Workspace
from coordination.paths import workspace_id_of
from nexus.core.database.store import store
from nexus.core.operations.errors import NexusError
from nexus.maintenance import history
from tests.conftest import Call, examples
from tests.maintenance.conftest import Done, Home

Nexus = Callable[..., Done]


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


@pytest.fixture
def replay(db: None, nexus: Nexus, tmp_path: Path) -> Callable[[str], Done]:
    """Play a text into the empty store of the test."""

    def play(text: str) -> Done:
        file = tmp_path / "history.ndjson"
        file.write_bytes(text.encode())
        return nexus("replay", str(file), "--json")

    return play


Replay = Callable[[str], Done]


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
def test_it_says_the_same_every_time(written: Path, exported: str, tmp_path: Path) -> None:
    arguments = ("--project", f"{written}-project", "--output", str(tmp_path / "again"))

    assert Home(written).process("export", *arguments).returncode == 0
    assert (tmp_path / "again").read_text() == exported
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o600
    assert "exists already" in Home(written).process("export", *arguments).stderr


def test_it_keeps_secrets_and_other_workspaces_to_itself(home: Home, exported: str) -> None:
    hashes = [row[0] for row in home.sql("SELECT secret_hash FROM sessions")]

    assert len(hashes) == 3
    assert not any(secret in exported for secret in hashes)
    assert "Elsewhere" not in exported
    assert "stranger" not in exported


def test_it_comes_back_byte_for_byte(replay: Replay, exported: str) -> None:
    done = replay(exported)

    assert done.code == 0, done.err
    workspace_id = Workspace.objects.get().pk
    assert "".join(f"{line}\n" for line in history.export(workspace_id)) == exported
    assert json.loads(done.out)["played"]["event"] == Event.objects.count()


def test_it_goes_on_after_the_last_event(replay: Replay, exported: str, call: Call, project: str) -> None:
    replay(exported)
    newest = Event.objects.latest("event_id").event_id
    given_out = store().given_out(Event)  # by tests before this one, perhaps: no id is given out twice

    call("message_create", project_root=project, from_agent_id="ana", subject="On", body="we go")

    assert Event.objects.latest("event_id").event_id == max(newest, given_out) + 1


def test_it_goes_on_above_the_ids_of_a_store_that_was_emptied(
    replay: Replay, exported: str, call: Call, project: str
) -> None:
    head = store().given_out(Event) + 5000
    store().give_out_above(Event, head)
    assert replay(exported).code == 0

    call("message_create", project_root=project, from_agent_id="ana", subject="On", body="we go")

    assert Event.objects.order_by("-event_id").first().event_id == head + 1  # type: ignore[union-attr]


def test_it_lets_nobody_in_with_a_replayed_session(replay: Replay, exported: str, refused: Call) -> None:
    replay(exported)
    session = Session.objects.filter(status="active").get()

    for secret in ("-", session.secret_hash):
        error = refused("inbox_pull", agent_id=session.agent_id, session_id=session.session_id, session_secret=secret)
        assert error["code"] == "NOT_OWNER"


@pytest.mark.usefixtures("starts_processes")
def test_it_is_healthy_in_a_new_home(written: Path, exported: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(exported)
    home = Home(tmp_path / "new")

    assert home.process("replay", str(tmp_path / "file")).returncode == 0
    done = home.process("doctor")
    assert done.returncode == 0, done.stdout
    again = home.process("export", "--workspace-id", workspace_id_of(f"{written}-project"))
    assert again.stdout == exported


def test_it_refuses_a_store_that_is_not_empty(replay: Replay, call: Call, exported: str) -> None:
    call("agent_register", agent_id="here-first")

    assert "not empty" in replay(exported).err
    assert Agent.objects.count() == 1


def changed(line: str, **changes: Any) -> str:
    record = json.loads(line)
    record["row"].update(changes)
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"))


def first(lines: list[str], kind: str) -> int:
    return next(index for index, line in enumerate(lines) if json.loads(line)["kind"] == kind)


FAULTS: dict[str, Callable[[list[str], int], str]] = {
    "no JSON": lambda lines, at: "{",
    "an empty line": lambda lines, at: "",
    "a list": lambda lines, at: "[]",
    "an unknown kind": lambda lines, at: '{"kind":"secret","row":{}}',
    "a column too many": lambda lines, at: changed(lines[at], colour="red"),
    "a wrong type": lambda lines, at: changed(lines[at], subject=7),
    "a null": lambda lines, at: changed(lines[at], body=None),
    "a text too long": lambda lines, at: changed(lines[at], from_agent_id="a" * 256),
    "a time that is none": lambda lines, at: changed(lines[at], created_at="yesterday"),
    "a time in another form": lambda lines, at: changed(lines[at], created_at="2026-01-01T00:00:00Z"),
    "a NUL": lambda lines, at: changed(lines[at], body="a\0"),
    "a lone surrogate": lambda lines, at: lines[at].replace('"Message ', '"\\ud800Message '),
    "a row twice": lambda lines, at: lines[at - 1],
    "a reference to nothing": lambda lines, at: changed(lines[at], channel_id="chn_none"),
    "an impossible row": lambda lines, at: changed(lines[at], subject=""),
    "spaces": lambda lines, at: lines[at].replace('":"', '": "', 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_it_names_the_line_that_is_wrong_and_plays_nothing(replay: Replay, lines: list[str], fault: str) -> None:
    at = first(lines, "message") + 3
    lines[at] = FAULTS[fault](lines, at)

    done = replay("".join(f"{line}\n" for line in lines))

    assert done.code == 1
    assert f"VALIDATION_ERROR: Line {at + 1}: " in done.err
    assert "Nothing was played" in done.err
    assert not Workspace.objects.exists()


def test_it_refuses_a_line_that_was_moved_lost_or_added(replay: Replay, lines: list[str]) -> None:
    at = first(lines, "message")
    moved = [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]
    lost = lines[:at] + lines[at + 1 :]
    added = [*lines, lines[at]]

    for variant, line in ((moved, at + 1), (added, len(added))):
        assert f"Line {line}: " in replay("".join(f"{line}\n" for line in variant)).err
    assert "Line " in replay("".join(f"{line}\n" for line in lost)).err
    assert not Workspace.objects.exists()


@pytest.mark.parametrize("keep", [0, 1, 20])
def test_it_refuses_a_file_that_was_cut_short(replay: Replay, lines: list[str], keep: int) -> None:
    done = replay("".join(f"{line}\n" for line in lines[:keep]))

    assert "cut short" in done.err
    assert not Agent.objects.exists()


@hypothesis.settings(
    max_examples=examples(25), deadline=None, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(data=st.data())
def test_it_plays_a_changed_file_whole_or_refuses_it_with_a_line(
    db: None, exported: str, tmp_path: Path, data: st.DataObject
) -> None:
    content = bytearray(exported.encode())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file = tmp_path / "changed"
    file.write_bytes(content)

    with transaction.atomic():
        try:
            history.replay(file)
        except NexusError as refusal:
            assert refusal.code == "VALIDATION_ERROR"
            assert "line" in refusal.details or "cut short" in refusal.message
            assert not any(model._base_manager.exists() for model in (kind.model for kind in history.kinds().values()))
        else:
            again = "".join(f"{line}\n" for line in history.export(Workspace.objects.get().pk))
            assert again.encode() == bytes(content)
        transaction.set_rollback(True)


@pytest.mark.usefixtures("starts_processes")
def test_it_refuses_the_history_of_a_workspace_that_is_not_there(home: Home, nexus: Nexus, db: None) -> None:
    assert "not in this store" in home.process("export", "--workspace-id", "none").stderr
