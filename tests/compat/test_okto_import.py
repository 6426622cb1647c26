"""`nexus import okto`: stores that the published versions made, whole, and bad ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from django.db import models, transaction

from coordination.models import (
    Agent,
    AgentKey,
    AgentLimits,
    Artifact,
    Channel,
    Event,
    Session,
    StoredSetting,
    Workspace,
)
from coordination.selectors import agent_of_key_hash
from coordination.services.agents import hash_secret
from handoffs.models import Handoff
from inbox.models import Delivery, Message
from nexus.compat.models import ImportedId, ImportedStore
from nexus.compat.okto.importing import OktoImport
from nexus.compat.okto.source import opened
from nexus.core.operations.errors import NexusError
from tests.acceptance import hub
from tests.acceptance.processes import environment, nexus
from tests.compat import okto
from tests.conftest import Call, Furnish, does

pytestmark = pytest.mark.django_db
MODELS: list[type[models.Model]] = [
    Workspace, Agent, AgentKey, AgentLimits, Session, Channel, Artifact, Message, Delivery, Handoff, Event,
    ImportedId, ImportedStore,
]  # fmt: skip


class Day(NamedTuple):
    """A store, and what its agents saw in it."""

    version: str
    home: Path
    project: str
    keys: dict[str, str]
    sessions: dict[str, dict[str, Any]]
    handoffs: dict[str, str]
    seen: dict[str, dict[str, Any]]


def played(version: str, folder: Path, messages: int) -> Day:
    if not okto.is_installed(version):
        pytest.skip(f"okto-nexus {version} is not installed: `python -m tests.compat.okto` does it")
    home, project = folder / "okto", folder / "project"
    home.mkdir()
    project.mkdir()
    answer = okto.play(version, home, project, messages)
    return Day(version, home, str(project), **answer)


@pytest.fixture(scope="module")
def day_of(runs_published: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Day]:
    """The day of a version, played once."""
    return cache(lambda version: played(version, tmp_path_factory.mktemp("day"), 40))


@pytest.fixture(params=okto.VERSIONS)
def day(request: pytest.FixtureRequest, day_of: Callable[[str], Day]) -> Day:
    return day_of(request.param)


@pytest.fixture
def newer(day_of: Callable[[str], Day], tmp_path: Path) -> Day:
    """A store of its own for one test, to be spoiled."""
    whole = day_of("0.3.1")
    return whole._replace(home=Path(shutil.copytree(whole.home, tmp_path / "okto")))


def run(home: Path) -> OktoImport:
    with opened(home) as source:
        importing = OktoImport(source, operator="olga", progress=lambda *_: None)
        importing.run()
    return importing


def everything() -> dict[str, list[dict[str, Any]]]:
    """All rows, without what tells when they were imported."""
    hidden = {"imported_at", "updated_at", "id"}
    return {
        model.__name__: [
            {name: value for name, value in row.items() if name not in hidden}
            for row in model._base_manager.order_by("pk").values()
            if row.get("type") != "setting.changed"  # which tells when a setting was imported
        ]
        for model in MODELS
    }


def ours(old: str) -> str:
    return ImportedId.objects.get(pk=old).new_id


def _mail(row: dict[str, Any]) -> list[Any]:
    return [row[name] for name in ("message_id", "subject", "from_agent_id", "status", "created_at")]


def compare(day: Day, call: Call) -> None:
    """Every agent's inbox, open handoffs, history and events are the same on both sides."""
    for name, seen in day.seen.items():
        for tool, key in (("inbox_peek", "inbox"), ("inbox_history", "history")):
            there = [_mail({**row, "message_id": ours(row["message_id"])}) for row in seen[key]["messages"]]
            here = [_mail(row) for row in call(tool, agent_id=name, limit=100)["messages"]]
            if day.version != "0.0.1":
                traces = [
                    [row.get("trace_id") for row in rows]
                    for rows in (seen[key]["messages"], call(tool, agent_id=name, limit=100)["messages"])
                ]
                assert sorted(map(str, traces[0])) == sorted(map(str, traces[1]))
            if key == "history":  # what was read at once has no order there
                there.sort(), here.sort()
            assert there == here, (name, tool)
        opened_there = [ours(row["handoff_id"]) for row in seen["open"]["handoffs"]]
        opened_here = call("handoff_list_available", project_root=day.project, agent_id=name)["handoffs"]
        assert [row["handoff_id"] for row in opened_here] == opened_there
        events = [
            event
            for stream in ("workspace", "handoff")
            for event in call("event_get", project_root=day.project, agent_id=name, stream=stream, limit=1000)["events"]
        ]
        same = ("event_id", "type", "actor_agent_id", "created_at")
        here, there = ([[row[field] for field in same] for row in rows] for rows in (events, seen["events"]))
        for rows in (here, there):  # this store gave out numbers before
            first = min(row[0] for row in rows)
            rows[:] = [[row[0] - first, *row[1:]] for row in rows]
        assert here == there


def test_every_agent_sees_the_same_on_both_sides(day: Day, call: Call) -> None:
    before = (day.home / "nexus.db").read_bytes()
    importing = run(day.home)
    compare(day, call)
    assert (day.home / "nexus.db").read_bytes() == before
    assert sorted(path.name for path in day.home.iterdir() if path.is_file()) == ["nexus.db"]
    assert importing.new["messages"] >= 42


def test_keys_and_sessions_go_on_working(day: Day, call: Call) -> None:
    run(day.home)
    for name, key in day.keys.items():
        assert agent_of_key_hash(hash_secret(key)) == name
        session = day.sessions[name]
        call("session_heartbeat", session_id=session["session_id"])
        given = {"session_id": session["session_id"], "session_secret": session["session_secret"]}
        call("inbox_pull", agent_id=name, limit=1, **given)
    assert not AgentKey.objects.filter(key_hash__in=list(day.keys.values())).exists(), "only hashes are stored"


def test_ids_of_before_are_understood(day: Day, call: Call) -> None:
    run(day.home)
    first = day.seen["bob"]["inbox"]["messages"][-1]["message_id"]
    assert call("message_status", message_id=first)["message_id"] == ours(first)
    assert call("inbox_ack", agent_id="bob", message_ids=[first])["acknowledged"] == 1
    claimed = day.handoffs["claimed"]
    assert call("handoff_get", project_root=day.project, handoff_id=claimed, agent_id="ann")["status"] == "CLAIMED"
    call("handoff_complete", project_root=day.project, handoff_id=claimed, agent_id="bob", result="Here too.")


def test_permissions_and_settings_become_ours(day: Day) -> None:
    importing = run(day.home)
    limits = AgentLimits.objects.get(name="cy")
    assert limits.values == {"messages_per_minute": 30, "recipients": 1}
    assert limits.refused == ["handoff_create"]
    assert StoredSetting.objects.get(pk="inbox_lease_ttl_seconds").value == "120"
    assert importing.unmoved["the permission messages.send_channel of cy"] == 1
    assert importing.unmoved["the setting inbox_read_receipts"] == 1
    if day.version == "0.3.1":
        assert does("tag_list")["data"]["tags"][0]["values"][0]["value"] == "core"
        assert does("agent_get", agent_id="bob")["data"]["tags"] == {"team": ["core"]}


def test_a_second_import_changes_nothing(day: Day) -> None:
    run(day.home)
    before = everything()
    assert not +run(day.home).new
    assert everything() == before


def test_what_came_since_is_added(day: Day, tmp_path: Path, call: Call) -> None:
    run(day.home)
    later = Path(shutil.copytree(day.home, tmp_path / "later"))
    before = Event.objects.count()
    with closing(sqlite3.connect(later / "nexus.db")) as store, store:
        store.create_function("new_id", 1, lambda old: f"msg_{'0' * 12}4{old[17:]}")
        store.execute(
            "INSERT INTO messages (message_id, workspace_id, from_agent_id, subject, body, created_at) "
            "SELECT new_id(message_id), workspace_id, 'ann', 'Later', 'x', '2999-01-01T00:00:00.000000Z' "
            "FROM messages LIMIT 1"
        )
        store.execute(
            "INSERT INTO events (workspace_id, stream, type, payload, created_at) "
            "SELECT workspace_id, stream, 'message.created', '{}', created_at FROM events LIMIT 1"
        )
    call("artifact_put", project_root=day.project, artifact_type="text", content="x")  # our event takes the next number
    new = run(later).new
    assert (new["messages"], new["events"]) == (1, 1)
    assert Event.objects.count() == before + 2
    assert Message.objects.latest("message_id").subject == "Later"


def test_into_a_store_that_has_events_they_follow_in_order(day: Day, tmp_path: Path, call: Call) -> None:
    (tmp_path / "other").mkdir()
    call("artifact_put", project_root=str(tmp_path / "other"), artifact_type="text", content="x")
    ahead = Event.objects.latest("pk").pk
    run(day.home)
    there = [event["event_id"] for event in day.seen["ann"]["events"] if event["stream"] == "workspace"]
    here = call("event_get", project_root=day.project, agent_id="ann", stream="workspace", limit=1000)["events"]
    assert [event["event_id"] - ahead for event in here] == there


# Bad input


def refused(home: Path) -> str:
    before = everything()
    with pytest.raises(NexusError) as caught, transaction.atomic():
        run(home)
    assert everything() == before
    assert caught.value.message.startswith("Nothing was imported")
    assert "sqlite" not in caught.value.message.lower().replace("nexus.db", "")
    return caught.value.message


def change(newer: Day, statement: str) -> None:
    with closing(sqlite3.connect(newer.home / "nexus.db")) as store, store:
        store.execute("PRAGMA ignore_check_constraints = ON")
        store.execute(statement)


def test_a_newer_store_says_to_update(newer: Day, db: None) -> None:
    change(newer, "INSERT INTO schema_migrations VALUES (900, '2027-01-01')")
    assert "Update Nexus" in refused(newer.home)


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.02])
def test_a_truncated_store_is_refused_whole(keep: float, newer: Day, db: None) -> None:
    database = newer.home / "nexus.db"
    whole = database.read_bytes()
    database.write_bytes(whole[: int(len(whole) * keep)])
    assert "damaged" in refused(newer.home)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET created_at = 'soon' WHERE rowid = 2",
        "UPDATE messages SET created_at = '0001-01-01T00:00:00+01:00' WHERE rowid = 2",
        "UPDATE messages SET artifacts = '[' WHERE rowid = 2",
        "UPDATE message_deliveries SET status = 'lost' WHERE rowid = 2",
        "UPDATE events SET payload = '{' WHERE event_id = 20",
        "UPDATE handoffs SET status = 'ODD' WHERE rowid = 1",
    ],
)
def test_a_row_that_cannot_be_taken_is_named(statement: str, newer: Day, db: None) -> None:
    change(newer, statement)
    refused(newer.home)


def test_a_pipe_in_the_place_of_an_artifact_is_left_out(newer: Day, db: None) -> None:
    change(newer, "UPDATE artifacts SET storage_path = 'odd/file', path = NULL, content = NULL")
    odd = newer.home / "artifacts" / "odd"
    odd.mkdir(parents=True)
    os.mkfifo(odd / "file")
    (odd / "manifest.json").write_text("[" * 100_000)
    done = run(newer.home)
    assert done.new["artifacts"] == 0
    assert any(words.startswith("artifacts") for words in done.unmoved)


def test_what_is_no_store_is_refused(tmp_path: Path, db: None) -> None:
    assert "there is no store" in refused(tmp_path)
    (tmp_path / "nexus.db").write_text("no database at all, but long enough for a header" * 100)
    assert "damaged" in refused(tmp_path)
    (tmp_path / "nexus.db").unlink()
    with closing(sqlite3.connect(tmp_path / "nexus.db")) as store, store:
        store.execute("CREATE TABLE t (x)")
    assert "no store of okto-nexus" in refused(tmp_path)


def test_a_locked_store_says_to_stop_its_owner(newer: Day, db: None) -> None:
    with closing(sqlite3.connect(newer.home / "nexus.db", isolation_level=None)) as its_owner:
        its_owner.execute("PRAGMA locking_mode = EXCLUSIVE")
        its_owner.execute("UPDATE agents SET role = role")
        assert "Stop" in refused(newer.home)


@pytest.fixture
def home(furnish: Furnish, tmp_path: Path) -> Path:
    """Ours, whose store is empty."""
    return furnish(tmp_path / "home")


def test_a_running_owner_is_named_and_goes_on(newer: Day, home: Path) -> None:
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM agents').fetchall(); " \
              "print(flush=True); sys.stdin.read(); c.execute('UPDATE agents SET role = 1'); c.commit()"  # fmt: skip
    command = [sys.executable, "-c", program, str(newer.home / "nexus.db")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        shown = nexus(home, "import", "okto", str(newer.home), "--dry-run")
        assert shown.returncode == 0 and "7  handoffs" in shown.stdout
        asked = nexus(home, "import", "okto", str(newer.home), "--yes")
        assert asked.returncode == 1 and f"process {owner.pid}" in asked.stderr
        owner.communicate(b"")
    assert owner.returncode == 0
    assert nexus(home, "import", "okto", str(newer.home), "--yes").returncode == 0


def test_a_store_on_a_read_only_disk_is_read(newer: Day, db: None) -> None:
    for path in (newer.home / "nexus.db", newer.home):
        path.chmod(0o500)
    try:
        assert run(newer.home).new["handoffs"] == 7
    finally:
        newer.home.chmod(0o700)


def test_the_command_shows_asks_and_answers(newer: Day, home: Path) -> None:
    command: Callable[..., Any] = lambda *more: nexus(home, "import", "okto", str(newer.home), *more)  # noqa: E731
    assert "nobody is there to ask" in command().stderr
    done = command("--yes", "--json")
    answer = json.loads(done.stdout)
    assert answer["imported"]["keys"] == 3 and answer["found"]["messages"] == answer["imported"]["messages"]
    again = json.loads(command("--yes", "--json").stdout)
    assert not any(again["imported"].values())
    assert "nxs_" not in done.stdout + done.stderr


REPEAT_EVENTS = """
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {times})
    INSERT INTO events (workspace_id, stream, type, created_at)
    SELECT workspace_id, stream, type, created_at FROM n, (SELECT * FROM events)
"""


def killed(newer: Day, home: Path) -> int:
    """Import, with the process killed in the middle, with rows written; return its exit code."""
    program = (
        "import os, signal; from nexus_site.launch import main; from nexus.core.progress import Bar; "
        "Bar.__call__ = lambda self, status, left, total: self._what == 'import' and left < 20 "
        "and os.kill(os.getpid(), signal.SIGKILL); main()"
    )
    command = [sys.executable, "-c", program, "import", "okto", str(newer.home), "--yes"]
    return subprocess.run(command, env=environment(home), check=False).returncode


def test_a_killed_import_is_run_again(newer: Day, home: Path) -> None:
    """The second one takes everything, and events keep their numbers."""
    change(newer, REPEAT_EVENTS.format(times=10))  # more than are read at once
    assert killed(newer, home) == -signal.SIGKILL
    again = nexus(home, "import", "okto", str(newer.home), "--yes", "--json")
    answer = json.loads(again.stdout)
    assert answer["imported"]["events"] == answer["found"]["events"] > 500
    with hub.serving(home) as served:
        url = f"{served.url}/api/v1/events?ordering=event_id&limit=200"
        here = {row["event_id"]: row["type"] for row in httpx.get(url).json()["data"]["results"]}
    there = {event["event_id"]: event["type"] for seen in newer.seen.values() for event in seen["events"]}
    assert here.items() >= there.items()


def test_a_hub_goes_on_while_a_store_is_imported(newer: Day, home: Path) -> None:
    """Its caches know of the import at once, also of one that was killed before."""
    with hub.serving(home) as served, httpx.Client(base_url=served.url) as client:
        key = {"authorization": f"Bearer {newer.keys['bob']}"}
        count: Callable[[], httpx.Response] = lambda: client.post(  # noqa: E731
            "/api/v1/operations/inbox_count", json={"agent_id": "bob"}, headers=key
        )
        assert count().status_code == 401
        made = client.post("/api/v1/agents", json={"agent_id": "zoe"})
        assert made.status_code == 201
        assert killed(newer, home) == -signal.SIGKILL
        assert count().status_code == 401
        assert client.post("/api/v1/agents", json={"agent_id": "yan"}).status_code == 201
        imported = nexus(home, "import", "okto", str(newer.home), "--yes", "--json")
        assert imported.returncode == 0, imported.stderr
        lanes = count().json()["data"]
        assert lanes["unread"] + lanes["in_flight"] == len(newer.seen["bob"]["inbox"]["messages"])
        agents = client.get("/api/v1/agents").json()["data"]["items"]
        assert {"ann", "bob", "zoe", "yan"} <= {row["agent_id"] for row in agents}
        call = {"project_root": newer.project, "artifact_type": "text", "content": "x"}
        assert client.post("/api/v1/operations/artifact_put", json=call, headers=key).status_code == 200
    checked = nexus(home, "doctor", "--json")
    assert checked.returncode == 0, checked.stdout


def test_a_store_that_takes_long_says_to_stop_the_hub(newer: Day, home: Path) -> None:
    change(newer, REPEAT_EVENTS.format(times=150))
    with hub.serving(home) as served:
        asked = nexus(home, "import", "okto", str(newer.home), "--yes")
        assert asked.returncode == 1 and "Stop that first" in asked.stderr
        assert str(served.process.pid) in asked.stderr
        assert httpx.get(f"{served.url}/api/v1/agents").json()["data"]["items"] == []


def test_two_imports_at_once_take_nothing_twice(day: Day) -> None:
    with opened(day.home) as one, opened(day.home) as other:
        both = [OktoImport(source, operator="olga", progress=lambda *_: None) for source in (one, other)]
        both[0].run()
        before = everything()
        both[1].run()
    assert everything() == before


def test_an_operator_sees_the_pages_of_an_imported_store(newer: Day, client: Any, admin_user: Any) -> None:
    run(newer.home)
    client.force_login(admin_user)
    for path in ("", "timeline/", "handoffs/", "events/", "agents/", "inbox/"):
        assert client.get(f"/admin/{path}").status_code in (200, 302), path
    assert does("handoff_list", project_root=newer.project)["ok"]
