"""Pages, asked as a browser on this machine asks; and a team at work that they show."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.apps import apps
from django.db import connection
from django.test import Client

from coordination.ids import new_id
from coordination.models import Event
from coordination.services import settings as stored
from coordination.toolset import run
from nexus.control.models import PoolAgent, PoolWorktree, Turn, TurnStatus
from nexus.core.clock import now
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.planning.models import Cycle, Issue, Task
from nexus.planning.toolset import PLANNING
from nexus.reservations.toolset import FILES
from nexus.topics import connections
from tests.browser import scene
from tests.conftest import MIGRATED, OPERATOR
from tests.topics.conftest import Client as Peer

LOCAL = {"host": "127.0.0.1:8420"}
Ids = dict[str, str]
NASTY = "<b>\u202eevil</b> " + "x" * 150
RECENT = timedelta(seconds=30)  # pages say how long ago something was


def do(operation: str, /, **arguments: Any) -> dict[str, Any]:
    envelope = run(Caller(transport="test"), operation, arguments)
    assert envelope["ok"], envelope
    data: dict[str, Any] = envelope["data"]
    return data


def shown(answer: Any) -> str:
    """A page's text and markup, on one line."""
    return re.sub(r"\s+", " ", html.unescape(answer.content.decode()))


def act(browser: Client, **form: Any) -> str:
    """The page after a button was pressed on Home."""
    return shown(browser.post("/admin/act/", {"next": "/admin/", **form}, follow=True))


def queries(act: Callable[[], Any]) -> int:
    """How many queries an act makes, once what is made only once is made."""
    act()
    counted: list[str] = []

    def count(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        counted.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(count), patch.object(stored, "REFRESH_SECONDS", float("inf")):
        act()  # without the look at stored settings, which comes once a second
    return len(counted)


def planning(operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Call an operation of planning."""
    return dict(dispatch.perform(PLANNING, Caller(transport="test"), operation, arguments).result())


def files(operation: str, /, **arguments: Any) -> dict[str, Any]:
    """Call an operation of files."""
    return dict(dispatch.perform(FILES, Caller(transport="test"), operation, arguments).result())


class Played:
    """The team's rows and files as they were once played, to be copied in SQLite, which is quicker than to play."""

    def __init__(self, directory: Path) -> None:
        self.root, self.files = directory / "parser", directory / "files"
        self.made = datetime.min.replace(tzinfo=UTC)
        self.ids: Ids = {}
        self.rows: dict[str, list[Any]] = {}
        models = [model for model in apps.get_models(include_auto_created=True) if model._meta.db_table not in MIGRATED]
        self.columns = {
            model._meta.db_table: [str(field.column) for field in model._meta.local_concrete_fields]
            for model in sorted(models, key=lambda model: model is Event)  # the search of messages reads both
            if not model._meta.proxy
        }

    def again(self) -> Ids:
        """The team, in a store that may have rows already."""
        was_empty = connection.vendor == "sqlite" and not any(self.read().values())
        shutil.rmtree(self.root, ignore_errors=True)
        if was_empty and timedelta() <= now() - self.made < RECENT:
            shutil.copytree(self.files, self.root)
            with connection.cursor() as cursor:
                for table, rows in self.rows.items():
                    marks = ", ".join(["%s"] * len(self.columns[table]))
                    cursor.executemany(f"INSERT INTO {table} ({_names(self.columns[table])}) VALUES ({marks})", rows)
            return {**self.ids}
        self.root.mkdir()
        ids, made = _play(self.root), now()
        if was_empty:
            self.ids, self.made, self.rows = ids, made, {table: rows for table, rows in self.read().items() if rows}
            shutil.rmtree(self.files, ignore_errors=True)
            shutil.copytree(self.root, self.files)
        return {**ids}

    def read(self) -> dict[str, list[Any]]:
        """All rows, each value as SQLite keeps it: of an expression (+x) it does not know the column's type."""
        with connection.cursor() as cursor:
            return {
                table: cursor.execute(f"SELECT {_names(columns, before='+')} FROM {table}").fetchall()
                for table, columns in self.columns.items()
            }


def _names(columns: list[str], before: str = "") -> str:
    return ", ".join(f'{before}"{column}"' for column in columns)


@pytest.fixture(scope="session")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """What the tests of this process share."""
    return Played(tmp_path_factory.mktemp("team"))


@pytest.fixture
def played_team(db: None, played: Played) -> Ids:
    """A small team at work."""
    return played.again()


def _play(root: Path) -> Ids:
    run(OPERATOR, "webhook_add", {"url": "https://example.com/nexus", "types": ["operator.created"]})
    topic = scene.talk(Peer().call)
    connections._held.clear()
    shown = scene.play(do, root)
    scene.plan(planning, root)
    planned = {"issue": str(Issue.objects.all()[0].pk), "task": Task.objects.filter(closed_at=None)[0].pk}
    planned |= {"cycle": str(Cycle.objects.get().pk)}
    planned["reservation"] = scene.hold(files, root, shown["claimed"])
    lead = _in_pool(root)
    planned |= {"pool_agent": lead.pk, "run": lead.turns.get().pk}
    return {**shown, **topic, **planned, "root": str(root)}


def _in_pool(root: Path) -> PoolAgent:
    moment = now()
    lead = PoolAgent.objects.create(
        pool_agent_id=new_id("pool"), agent_id="lead", depth=0, preset="trusted", cwd=str(root), runner="rehearsal",
        is_temporary=False, created_by="ada", created_at=moment, last_action_at=moment,
    )  # fmt: skip
    PoolWorktree.objects.create(
        worktree_id=new_id("tree"), agent=lead, path=f"{root}/tree", git_dir=f"{root}/.git", branch="nexus/lead",
        base="0" * 40, origin=str(root), origin_git_dir=f"{root}/.git", created_at=moment,
    )  # fmt: skip
    Turn.objects.create(
        turn_id=new_id("turn"), agent=lead, request_id="first", content="Look around.", source="rpc", answer="I did.",
        status=TurnStatus.DONE, queued_at=moment, started_at=moment, ended_at=moment,
    )  # fmt: skip
    return lead


@pytest.fixture
def browser() -> Client:
    """A browser on this machine."""
    return Client(headers=LOCAL)
