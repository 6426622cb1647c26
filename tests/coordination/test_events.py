"""The event log read by cursor: filters, visibility, clamps, and the precedence of its errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordination.log import follow, selectors
from coordination.log.emit import emit
from coordination.models import Event, Stream
from coordination.routing import Target
from nexus.core.clock import now
from nexus.core.operations.errors import Code, NexusError
from tests.conftest import LOCAL, Call, examples
from tests.store import plans

Read = Callable[..., dict[str, Any]]
FOR_BOB: Target = {"strategy": "direct", "agent_id": "bob"}


@pytest.fixture
def log(workspace: str) -> Callable[..., Event]:
    """Write an event as a service would."""

    def write(type: str = "note", **fields: Any) -> Event:
        defaults = {"stream": Stream.WORKSPACE, "actor": "eve", "payload": {}, "moment": now()}
        return emit(**{"workspace_id": workspace, "type": type, **defaults, **fields})

    return write


@pytest.fixture
def read(call: Call, project: str) -> Read:
    def page(**arguments: Any) -> dict[str, Any]:
        return call("event_get", **{"project_root": project, "agent_id": "ann", "stream": "workspace", **arguments})

    return page


def ids(page: dict[str, Any]) -> list[int]:
    return [event["event_id"] for event in page["events"]]


def test_it_gives_an_event_in_the_contracts_shape(log: Any, read: Read, workspace: str) -> None:
    event = log(payload={"n": 1})
    page = read()
    assert page == {
        "events": [
            {
                "event_id": event.event_id,
                "workspace_id": workspace,
                "stream": "workspace",
                "type": "note",
                "payload": {"n": 1},
                "actor_agent_id": "eve",
                "task_id": None,
                "handoff_id": None,
                "created_at": event.created_at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            }
        ],
        "next_cursor": event.event_id,
        "has_more": False,
        "timed_out": False,
    }


def test_it_ends_a_page_that_is_full_of_text_and_goes_on_from_there(log: Any, read: Read, configure: Any) -> None:
    events = [log(payload={"subject": "x" * length}) for length in (2000, 400, 400, 1)]
    configure(max_inline_bytes=14)  # 64 of these hold two of 400

    pages = [read()]
    while pages[-1]["has_more"]:
        pages.append(read(cursor=pages[-1]["next_cursor"]))

    assert [ids(page) for page in pages] == [[event.event_id for event in part] for part in (events[:1], events[1:])]


def test_it_moves_the_cursor_past_everything_it_examined(log: Any, read: Read) -> None:
    first = log("wanted")
    for _ in range(5):
        log("other")
    hidden = log("wanted", visibility="private", target=FOR_BOB)
    assert read(filters={"type": "wanted"}) == {
        "events": read(limit=1)["events"],
        "next_cursor": hidden.event_id,
        "has_more": False,
        "timed_out": False,
    }
    page = read(limit=1)
    assert (ids(page), page["has_more"]) == ([first.event_id], True)
    assert page["next_cursor"] < ids(read(cursor=page["next_cursor"], limit=1))[0]


def test_it_keeps_a_cursor_that_is_ahead_of_the_log(log: Any, read: Read) -> None:
    log()
    assert read(cursor=2**63 - 1)["next_cursor"] == 2**63 - 1


def test_it_filters_by_equality_and_all_at_once(log: Any, read: Read, workspace: str) -> None:
    one = log("a", actor="eve")
    two = log("a", actor="bob", handoff_id="h1")
    three = log("b", actor="bob", handoff_id="h1")
    task = Event.objects.create(
        workspace_id=workspace, stream="workspace", type="c", task_id="t1", created_at=now(), visibility="public"
    )
    assert ids(read(filters={"type": "a"})) == [one.event_id, two.event_id]
    assert ids(read(filters={"agent_id": "bob"})) == [two.event_id, three.event_id]
    assert ids(read(filters={"handoff_id": "h1", "type": "a", "agent_id": "bob"})) == [two.event_id]
    assert ids(read(filters={"task_id": "t1"})) == [task.event_id]
    assert ids(read(filters={"type": "A"})) == []
    assert len(ids(read(filters={}))) == len(ids(read(filters=None))) == 4


def test_it_keeps_streams_and_workspaces_apart(log: Any, read: Read, call: Call, tmp_path: Path) -> None:
    here = log()
    handoff = log(stream="handoff")
    elsewhere = call("workspace_resolve", project_root=str(tmp_path))["workspace_id"]
    there = log(workspace_id=elsewhere)
    assert ids(read()) == [here.event_id]
    assert ids(read(stream="handoff")) == [handoff.event_id]
    assert ids(read(stream="agent")) == []
    assert ids(read(project_root=str(tmp_path))) == [there.event_id]


def test_it_shows_the_eligible_and_the_actor_what_is_not_public(log: Any, read: Read, call: Call) -> None:
    call("agent_register", agent_id="ocr-1", capabilities={"ocr": True})
    direct = log(visibility="eligible", target=FOR_BOB)
    skill = log(visibility="private", target={"strategy": "capability", "capability": ["ocr"]})
    assert ids(read(agent_id="ann")) == []
    assert ids(read(agent_id="bob")) == [direct.event_id]
    assert ids(read(agent_id="ocr-1")) == [skill.event_id]
    assert ids(read(agent_id="eve")) == [direct.event_id, skill.event_id]


def test_it_is_not_wedged_by_a_poisoned_event(log: Any, read: Read, workspace: str) -> None:
    poison: list[Any] = [7, [], "direct", {"strategy": "direct"}, {"strategy": "mixed", "rules": 5}, {"strategy": "x"}]
    for target in poison:
        Event.objects.create(
            workspace_id=workspace, stream="workspace", type="x", visibility="eligible", target=target, created_at=now()
        )
    last = log()
    assert ids(read()) == [last.event_id]


def test_it_pins_the_page_size_to_the_ceiling(log: Any, read: Read, configure: Callable[..., None]) -> None:
    for _ in range(4):
        log()
    configure(max_event_limit=3)
    assert len(read(limit=10**30)["events"]) == 3
    assert len(read(limit=None)["events"]) == 3


def test_it_gives_a_hundred_events_by_default(workspace: str, read: Read) -> None:
    Event.objects.bulk_create(
        Event(workspace_id=workspace, stream="workspace", type="n", visibility="public", created_at=now())
        for _ in range(101)
    )
    page = read()
    assert (len(page["events"]), page["has_more"]) == (100, True)


@pytest.mark.parametrize("name", ["event_get", "event_wait", "event_cursor"])
def test_it_ranks_its_errors(refused: Call, name: str, project: str) -> None:
    bad: dict[str, Any] = {"project_root": "/no/such", "agent_id": "a\x00", "stream": "nope", "unknown": 1}
    assert refused(name, **{**bad, "project_root": None})["code"] == "WORKSPACE_REQUIRED"
    assert refused(name, **bad)["code"] == "INVALID_STREAM"
    assert refused(name, **{**bad, "stream": "agent"})["code"] == "VALIDATION_ERROR"
    ranked = {"project_root": "/no/such", "stream": "agent"}
    assert refused(name, **ranked)["code"] == "VALIDATION_ERROR"
    assert refused(name, **ranked, agent_id="a")["code"] == "WORKSPACE_UNRESOLVED"


@pytest.mark.parametrize("stream", ["session", "Workspace", "", " ", None, 7, "workspace\x00"])
def test_it_knows_three_streams(refused: Call, project: str, stream: Any) -> None:
    arguments = {"project_root": project, "agent_id": "ann", "stream": stream}
    assert refused("event_get", **arguments)["code"] == "INVALID_STREAM"
    del arguments["stream"]
    assert refused("event_get", **arguments)["code"] == "INVALID_STREAM"


@pytest.mark.parametrize(
    "bad",
    [
        {"cursor": -1},
        {"cursor": 2**63},
        {"limit": 0},
        {"limit": -1},
        {"filters": {"actor": "a"}},
        {"filters": {"type": 7}},
    ],
)
def test_it_refuses_malformed_paging_and_filters(refused: Call, project: str, bad: dict[str, Any]) -> None:
    arguments = {"project_root": project, "agent_id": "ann", "stream": "workspace", **bad}
    error = refused("event_get", **arguments)
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", next(iter(bad)))


def test_it_names_the_filter_that_is_wrong(refused: Call, project: str) -> None:
    arguments = {"project_root": project, "agent_id": "ann", "stream": "workspace", "filters": {"type": 7}}
    assert refused("event_get", **arguments)["message"] == "filters.type must be a string."


def test_it_gives_the_cursor_to_follow_from_now(log: Any, call: Call, read: Read, project: str) -> None:
    where = {"project_root": project, "agent_id": "ann", "stream": "workspace"}
    assert call("event_cursor", **where) == {"cursor": 0}
    log()
    newest = log(visibility="private", target=FOR_BOB)
    log(stream="handoff")
    cursor = call("event_cursor", **where)["cursor"]
    assert cursor == newest.event_id
    later = log()
    assert ids(read(cursor=cursor)) == [later.event_id]


@pytest.mark.parametrize("bad", [{"stream": "session"}, {"visibility": "workspace"}, {"type": " "}])
def test_it_refuses_to_write_what_no_reader_would_see(log: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(NexusError) as caught:
        log(**bad)
    assert caught.value.code == Code.INTERNAL_ERROR
    assert not Event.objects.exists()


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    kinds=st.lists(
        st.tuples(st.sampled_from("ab"), st.booleans(), st.sampled_from(["workspace", "agent"])), max_size=12
    ),
    limit=st.integers(1, 5),
    only=st.sampled_from([None, "a"]),
)
def test_it_gives_each_visible_match_once_whatever_the_page_size(
    log: Any, read: Read, kinds: list[tuple[str, bool, str]], limit: int, only: str | None
) -> None:
    with transaction.atomic():
        expected = []
        start = cursor = Event.objects.order_by("-event_id").values_list("event_id", flat=True).first() or 0
        for type, hidden, stream in kinds:
            private = {"visibility": "private", "target": FOR_BOB} if hidden else {}
            event = log(type, stream=Stream(stream), **private)
            if not hidden and stream == "workspace" and only in (None, type):
                expected.append(event.event_id)
        seen: list[int] = []
        more = True
        while more:
            page = read(cursor=cursor, limit=limit, filters={"type": only} if only else None)
            assert page["has_more"] is (len(seen) + len(page["events"]) < len(expected))
            seen += ids(page)
            more, cursor = page["has_more"], page["next_cursor"]
        assert seen == expected
        assert cursor >= start
        transaction.set_rollback(True)


class TestBoundedLooks:
    """A log full of what one may not see, or does not ask for, holds up nobody: a look ends, and the next goes on."""

    @pytest.fixture
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(selectors, "EXAMINED_AT_ONCE", 5)
        monkeypatch.setattr(selectors, "FILTERED_AT_ONCE", 5)
        monkeypatch.setattr(follow, "SPAN", 5)

    def test_it_ends_a_look_at_invisible_events_with_a_cursor_that_advanced(
        self, few: None, log: Any, read: Read
    ) -> None:
        hidden = [log(visibility="private", target=FOR_BOB) for _ in range(12)]
        shown = log()
        pages = [read(limit=1)]
        while pages[-1]["has_more"]:
            pages.append(read(limit=1, cursor=pages[-1]["next_cursor"]))
        assert [ids(page) for page in pages] == [[], [], [shown.event_id]]
        assert [page["next_cursor"] for page in pages[:2]] == [hidden[4].event_id, hidden[9].event_id]

    def test_it_tells_of_no_more_where_the_look_and_the_log_end_together(self, few: None, log: Any, read: Read) -> None:
        hidden = [log(visibility="private", target=FOR_BOB) for _ in range(5)]
        assert (read()["has_more"], read()["next_cursor"]) == (False, hidden[-1].event_id)

    def test_it_ends_a_look_for_what_hardly_any_event_is(self, few: None, log: Any, read: Read) -> None:
        for _ in range(12):
            log()
        wanted = log("rare")
        page, looks = read(filters={"type": "rare"}), 1
        while page["has_more"]:
            page, looks = read(filters={"type": "rare"}, cursor=page["next_cursor"]), looks + 1
        assert (ids(page), looks) == ([wanted.event_id], 3)

    def test_it_says_in_a_snapshot_too_where_the_look_ended(
        self, few: None, log: Any, call: Call, project: str
    ) -> None:
        hidden = [log(visibility="private", target=FOR_BOB) for _ in range(6)]
        page = call("event_wait", project_root=project, agent_id="ann", stream="workspace")
        assert (page["events"], page["has_more"], page["next_cursor"]) == ([], True, hidden[4].event_id)

    def test_it_follows_in_bounded_looks_too(self, few: None, log: Any) -> None:
        for _ in range(12):
            log()
        wanted = log("rare")
        page = follow.read_events(LOCAL, follow.Filters(type=frozenset({"rare"})), wanted.event_id - 13)
        assert (page.events, page.more, page.cursor) == ([], True, wanted.event_id - 8)
        while page.more:
            page = follow.read_events(LOCAL, follow.Filters(type=frozenset({"rare"})), page.cursor)
        assert page.events == [wanted]


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_reads_a_handoffs_events_along_their_index_alone(log: Any, read: Read) -> None:
    event = log(stream="handoff", handoff_id="hnd_1")
    found: list[int] = []
    looked = plans(
        lambda: found.extend(ids(read(stream="handoff", cursor=event.event_id - 1, filters={"handoff_id": "hnd_1"})))
    )
    assert found == [event.event_id]
    assert any("events_of_handoff (handoff_id=?" in plan for plan in looked), looked
    assert not any("event_id>?" in plan for plan in looked), looked  # a walk through all that the stream holds
