"""The streams of the log are those that the apps declare; an app that is added brings its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command
from django.test import Client

from coordination.log.emit import emit, streams
from coordination.log.follow import Filters, Follower, parse_query, read_events
from coordination.models import Event
from coordination.operations.events import EventCursor
from coordination.toolset import run
from nexus.core.apps import NexusAppConfig
from nexus.core.clock import now
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code, NexusError
from nexus.core.waiting import waiter
from nexus.maintenance.history import export
from tests.conftest import Call, streamed
from tests.core.waiting import LONG, parked, put

local = Client(headers={"host": "localhost"})


class Toy(NexusAppConfig):
    name = "toy"

    def streams(self) -> Mapping[str, str]:
        return {"toy": "what toys do"}


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An app more, that writes to a stream of its own."""
    added = Toy("toy", sys.modules[__name__])
    added.apps = apps
    added.import_models()
    monkeypatch.setitem(apps.app_configs, "toy", added)
    streams.cache_clear()
    yield
    streams.cache_clear()


def wind_up(workspace: str | None) -> Event:
    return emit(workspace_id=workspace, stream="toy", type="toy.wound", actor="ann", payload={}, moment=now())


def test_it_writes_and_reads_the_stream_of_an_added_app(toy: None, call: Call, project: str, workspace: str) -> None:
    event = wind_up(workspace)
    where = {"project_root": project, "agent_id": "bob", "stream": "toy"}
    assert [row["event_id"] for row in call("event_get", **where)["events"]] == [event.event_id]
    assert call("event_cursor", **where) == {"cursor": event.event_id}
    assert call("event_get", **{**where, "stream": "workspace"})["events"] == []


def test_it_filters_by_the_stream_of_an_added_app(toy: None, workspace: str) -> None:
    event = wind_up(workspace)
    assert parse_query({"stream": ["toy"]})[0].admit(event)
    rows = local.get("/api/v1/events", {"stream": "toy"}).json()["data"]["results"]
    assert [row["stream"] for row in rows] == ["toy"]
    page = local.get("/admin/coordination/event/?stream=toy").content.decode()
    assert "toy.wound" in page and "?stream=toy" in page


def test_it_tells_of_every_stream_where_one_is_asked_for(toy: None, capsys: pytest.CaptureFixture[str]) -> None:
    schema = EventCursor.model_json_schema()["properties"]["stream"]
    assert schema["enum"] == ["workspace", "agent", "handoff", "topic", "planning", "file", "pool", "forge", "toy"]
    assert "what toys do" in schema["description"]
    with pytest.raises((SystemExit, CommandError)):
        call_command("tail", "--help")
    assert "workspace, agent, handoff, topic, planning, file, pool, forge, toy" in " ".join(
        capsys.readouterr().out.split()
    )


def test_it_refuses_a_stream_that_no_app_declares(refused: Call, project: str, workspace: str) -> None:
    error = refused("event_get", project_root=project, agent_id="ann", stream="toy")
    assert (error["code"], error["message"]) == (
        "INVALID_STREAM",
        "stream must be one of workspace, agent, handoff, topic, planning, file, pool, forge.",
    )
    assert local.get("/api/v1/events", {"stream": "toy"}).status_code == 400
    with pytest.raises(NexusError, match="handoff"):
        parse_query({"stream": ["toy"]})
    with pytest.raises(NexusError, match="outside the vocabulary"):
        wind_up(workspace)
    assert not Event.objects.filter(stream="toy").exists()


@pytest.mark.parametrize("name", ["workspace", "stream", "type", "agent"])
@pytest.mark.parametrize("text", ["\x00", "\ud800", "a,\udfff"])
def test_it_refuses_a_filter_that_no_store_can_be_asked_for(name: str, text: str) -> None:
    with pytest.raises(NexusError) as raised:
        parse_query({name: [text]})
    assert raised.value.code == Code.VALIDATION_ERROR


# Events of no workspace


@pytest.fixture
def deed(call: Call, db: None) -> Event:
    """What an operator did."""
    assert run(Caller("test", operator="olga"), "agent_create", {"agent_id": "ann"})["ok"]
    return Event.objects.get(type="agent.created")


def test_it_needs_no_workspace_for_what_concerns_the_hub(deed: Event, call: Call, workspace: str) -> None:
    assert deed.workspace_id is None
    assert [row["workspace_id"] for row in call("workspace_list")["workspaces"]] == [workspace]
    listed = local.get("/api/v1/workspaces").json()["data"]["results"]
    assert [row["workspace_id"] for row in listed] == [workspace]
    assert local.get(f"/api/v1/events/{deed.pk}").json()["data"]["workspace_id"] is None


def test_it_shows_operators_the_events_of_no_workspace(deed: Event, workspace: str) -> None:
    for path in (
        "/admin/",
        "/admin/coordination/event/",
        f"/admin/coordination/event/{deed.pk}/change/",
        "/admin/find/?q=created",
    ):
        page = local.get(path)
        assert page.status_code == 200, path
        assert " registered " in page.content.decode(), path
    record = local.get(f"/admin/coordination/event/{deed.pk}/change/")
    assert "agent.created" in record.content.decode()
    assert (
        f"/admin/coordination/event/{deed.pk}/change/"
        not in local.get(f"/admin/coordination/event/?workspace={workspace}").content.decode()
    )
    assert '"workspace_id": null' in streamed(local.get("/admin/coordination/event/?export=ndjson"))


def test_it_keeps_the_events_of_no_workspace_out_of_every_workspace(
    deed: Event, call: Call, project: str, workspace: str
) -> None:
    assert call("event_get", project_root=project, agent_id="ann", stream="agent")["events"] == []
    assert not parse_query({"workspace": [workspace]})[0].admit(deed)
    assert "agent.created" not in "".join(export(workspace))
    shared = call("shared_md_render", workspace_id=workspace)
    assert "agent.created" not in Path(shared["path"]).read_text()


def test_it_shows_an_agent_an_event_of_no_workspace_where_its_visibility_does(deed: Event, workspace: str) -> None:
    told = emit(workspace_id=None, stream="agent", type="news", actor=None, payload={}, moment=now())
    seen = read_events(Caller("test", agent_id="bob"), Filters(), 0).events
    assert [event.event_id for event in seen] == [told.event_id]


async def test_a_follower_is_woken_by_what_its_filters_admit(committed: None, project: str) -> None:
    filters, _ = parse_query({"stream": ["workspace"]})
    follower = Follower(lambda: Caller("websocket", agent_id="bob"), "bob", filters, 0)
    async with aclosing(follower.follow()) as items:
        first = asyncio.create_task(anext(items))
        await parked()
        assert {stream for _, stream, _ in keys_of_the_parked()} == {"workspace"}
        await put(project, "news")
        event = await asyncio.wait_for(first, LONG)
        assert isinstance(event, Event) and event.payload["name"] == "news"


def keys_of_the_parked() -> Iterable[Any]:
    (wait,) = waiter().parked
    return wait.keys
