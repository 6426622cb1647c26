"""Every list of the REST API: pages, ordering, filters, ETags, and a fixed number of queries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from coordination.ids import id_floor
from coordination.models import Artifact, Event, Workspace
from inbox.models import Message
from nexus.core.clock import iso, now
from nexus.core.rest import pagination
from tests.conftest import Call
from tests.store import plans, steps

LISTS = ["workspaces", "agents", "sessions", "channels", "messages", "deliveries", "handoffs", "artifacts", "events"]
KEYS = {"deliveries": "delivery_id"} | {name: f"{name[:-1]}_id" for name in LISTS if name != "deliveries"}

local = Client(headers={"host": "localhost"})


def get(path: str, **query: Any) -> dict[str, Any]:
    response = local.get(f"/api/v1/{path}", query)
    assert response.status_code == 200, response.content
    body: dict[str, Any] = response.json()
    assert body["ok"]
    data: dict[str, Any] = body["data"]
    return data


def fill(call: Call, project: str, count: int, first: int = 0) -> None:
    """`count` rows more in every list."""
    workspace = call("workspace_resolve", project_root=project)["workspace_id"]
    for number in range(first, first + count):
        agent = f"agent{number}"
        call("agent_register", agent_id=agent, capabilities=["read"])
        call("session_open", agent_id=agent, workspace_id=workspace)
        call("channel_create", project_root=project, name=f"channel{number}")
        call("artifact_put", project_root=project, artifact_type="text", content="x", name=str(number))
        to = {"strategy": "direct", "agent_id": agent}
        call("message_create", project_root=project, from_agent_id="agent0", subject="s", body="b", target=to)
        call("handoff_create", project_root=project, from_agent_id="agent0", target=to, visibility="public")


@pytest.fixture
def five(call: Call, project: str, tmp_path: Any) -> None:
    for number in range(4):
        (tmp_path / f"other{number}").mkdir()
        call("workspace_resolve", project_root=str(tmp_path / f"other{number}"))
    fill(call, project, 5)


@pytest.mark.parametrize("name", LISTS)
def test_it_pages_through_a_list_in_either_order_without_a_gap_or_a_repeat(five: None, name: str) -> None:
    key = KEYS[name]
    whole = [row[key] for row in get(name, limit=200)["results"]]
    assert len(whole) >= 5 and len(set(whole)) == len(whole)
    paged, page = [], get(name, limit=2)
    while True:
        paged += [row[key] for row in page["results"]]
        assert page["has_more"] == (page["next_cursor"] is not None)
        if page["next_cursor"] is None:
            break
        page = get(name, limit=2, cursor=page["next_cursor"])
    assert paged == whole
    up, down = ([row[key] for row in get(name, ordering=order)["results"]] for order in (key, f"-{key}"))
    assert up == sorted(up) == down[::-1]
    row = get(name, limit=1)["results"][0]
    assert row.items() <= get(f"{name}/{row[key]}").items(), "alone, it is shown as in the list"


def test_it_pages_through_rows_that_are_equal_in_the_ordering(five: None, project: str) -> None:
    Artifact.objects.update(size_bytes=7)
    first = get("artifacts", ordering="size_bytes", limit=3)
    rest = get("artifacts", ordering="size_bytes", limit=3, cursor=first["next_cursor"])
    assert len({row["artifact_id"] for row in first["results"] + rest["results"]}) == 5


def test_it_neither_repeats_nor_hides_what_is_written_between_two_pages(five: None, call: Call, project: str) -> None:
    newest_first = get("messages", limit=3)
    fill(call, project, 2, first=5)
    rest = get("messages", cursor=newest_first["next_cursor"])
    seen = [row["message_id"] for row in newest_first["results"] + rest["results"]]
    assert len(seen) == len(set(seen)) == 10  # five messages and five notices of handoffs, none of the later ones


@pytest.mark.parametrize("name", LISTS)
def test_it_needs_as_many_queries_for_many_rows_as_for_few(
    five: None, counted_alone: None, call: Call, project: str, name: str, django_assert_num_queries: Any
) -> None:
    get(name, limit=200)
    with CaptureQueriesContext(connection) as few:
        before = len(get(name, limit=200)["results"])
    fill(call, project, 6, first=5)
    with django_assert_num_queries(len(few)):
        after = len(get(name, limit=200)["results"])
    assert after > before or name == "workspaces"


def test_it_filters(five: None) -> None:
    for name, query, expected in (
        ("agents", {"role": "none"}, 0),
        ("sessions", {"agent": "agent1"}, 1),
        ("sessions", {"status": "closed"}, 0),
        ("sessions", {"workspace": "nowhere"}, 0),
        ("channels", {"name": "channel3"}, 1),
        ("messages", {"recipient": "agent1"}, 2),
        ("messages", {"from_agent_id": "agent1"}, 0),
        ("deliveries", {"recipient": "agent1", "status": "unread"}, 2),
        ("deliveries", {"status": "read"}, 0),
        ("handoffs", {"status": "OPEN"}, 5),
        ("handoffs", {"status": "CLAIMED"}, 0),
        ("artifacts", {"name": "2"}, 1),
        ("events", {"stream": "handoff", "type": "handoff.created"}, 5),
        ("events", {"created_at__lt": "2001-01-01T00:00:00Z"}, 0),
    ):
        assert len(get(name, **query)["results"]) == expected, (name, query)


@pytest.mark.sqlite  # whose plans say so; the indexes are the same
def test_it_sorts_no_more_than_a_page(five: None) -> None:
    here = {"workspace": Workspace.objects.order_by("-created_at")[0].pk}
    for name, query in (
        ("messages", {"recipient": "agent1"}),
        ("messages", {"recipient": "agent1", **here}),
        ("deliveries", {"recipient": "agent1"}),
        ("deliveries", here),
        ("deliveries", {"from_agent_id": "agent0"}),
        ("deliveries", {"status": "unread"}),
        ("handoffs", here),
        ("events", {"type": "message.created"}),
    ):
        read = plans(lambda name=name, query=query: get(name, **query))  # type: ignore[misc]
        assert read and not [plan for plan in read if "TEMP B-TREE" in plan], (name, query)


def test_a_filter_that_no_index_serves_passes_so_many_rows_at_once(five: None, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"type": "artifact.created"}
    whole = get("events", **wanted)
    assert len(whole["results"]) == 5 and not whole["has_more"]
    monkeypatch.setattr(pagination, "PASSED_AT_ONCE", 4)
    for ordering in ("-event_id", "event_id"):
        found, cursor, pages = [], None, 0
        while pages == 0 or cursor:
            page = get("events", ordering=ordering, **wanted, **({"cursor": cursor} if cursor else {}))
            found += page["results"]
            cursor, pages = page["next_cursor"], pages + 1
        assert found == whole["results"][:: 1 if ordering == "-event_id" else -1]
        assert pages == -(-Event.objects.count() // 4) + (Event.objects.count() % 4 == 0)


@pytest.mark.sqlite  # whose steps are counted
def test_a_rare_filter_costs_the_same_in_a_long_log(five: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pagination, "PASSED_AT_ONCE", 200)
    place, moment = Workspace.objects.first(), now()

    def log(count: int) -> None:
        Event.objects.bulk_create(
            Event(workspace=place, stream="workspace", type="made", created_at=moment) for _ in range(count)
        )

    log(300)
    few = steps(lambda: get("events", type="never.happened"))
    log(3_000)
    assert steps(lambda: get("events", type="never.happened")) < 1.5 * few


def test_it_finds_by_its_id_when_something_was_made(five: None) -> None:
    day, recent = timedelta(days=1), Message.objects.count()
    sent = now() - 40 * day
    old: Any = Message.objects.order_by("pk")[0]
    old.message_id, old.created_at = f"{id_floor('msg', sent)}{'0' * 20}", sent
    old.save(force_insert=True)
    for since, until, found in [(41, 39, 1), (39, -1, recent), (60, 41, 0), (41, -1, recent + 1)]:
        query = {"created_at__gte": iso(now() - since * day), "created_at__lt": iso(now() - until * day)}
        assert len(get("messages", **query)["results"]) == found


REFUSED = """
    limit=0 limit=201 limit=x limit=%E0%A5%A7 ordering=secret_hash cursor=x cursor=eyJhIjoxfQ==
    cursor=WyItc2Vzc2lvbl9pZCIsbnVsbCxudWxsXQ== status=nonsense nonsense=1 last_heartbeat_at__gte=yesterday agent=%00
""".split()


def test_it_refuses_a_query_out_of_its_vocabulary(five: None) -> None:
    for query in REFUSED:
        response = local.get(f"/api/v1/sessions?{query}")
        assert (response.status_code, response.json()["error"]["code"]) == (400, "VALIDATION_ERROR"), query


@pytest.fixture(scope="module")
def paths() -> dict[str, Any]:
    """What the schema says of each path. To make it runs ldconfig, once in a process: no test does it itself."""
    found: dict[str, Any] = local.get("/api/v1/schema").json()["paths"]
    return found


def test_it_refuses_a_moment_that_is_out_of_time_in_utc(db: None, paths: dict[str, Any]) -> None:
    asked = set()
    for path, methods in paths.items():
        for parameter in methods.get("get", {}).get("parameters", []):
            if parameter["schema"].get("format") == "date-time":
                for moment in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"):
                    answer = local.get(path, {parameter["name"]: moment})
                    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "VALIDATION_ERROR")
                    assert answer.json()["error"]["details"] == {"field": parameter["name"]}
                asked.add(path.removeprefix("/api/v1/"))
    assert asked == {*LISTS} - {"channels"}


def test_it_pages_through_capabilities(call: Call) -> None:
    call("agent_register", agent_id="ana", capabilities=["a", "b", "c"])
    call("agent_register", agent_id="bo", capabilities=["b", "d"])
    first = get("capabilities", limit=3)
    rest = get("capabilities", limit=3, cursor=first["next_cursor"])
    assert [row["capability"] for row in first["results"] + rest["results"]] == ["a", "b", "c", "d"]
    assert [row["capability"] for row in get("capabilities", agent="bo")["results"]] == ["b", "d"]


def test_it_takes_a_cursor_only_for_the_ordering_it_was_made_for(five: None) -> None:
    cursor = get("agents", limit=2)["next_cursor"]
    assert local.get("/api/v1/agents", {"cursor": cursor, "ordering": "agent_id"}).status_code == 400


@pytest.mark.parametrize("name", [*LISTS, "capabilities", "settings"])
def test_it_answers_304_to_who_has_it_already(five: None, call: Call, project: str, name: str) -> None:
    etag = local.get(f"/api/v1/{name}")["ETag"]
    assert local.get(f"/api/v1/{name}", headers={"if-none-match": etag}).status_code == 304
    if name not in ("settings", "workspaces"):
        fill(call, project, 1, first=9)
        assert local.get(f"/api/v1/{name}", headers={"if-none-match": etag}).status_code == 200


def test_it_shows_inline_content_of_an_artifact_that_is_asked_for_alone(five: None) -> None:
    row = get("artifacts", limit=1)["results"][0]
    assert "content" not in row
    assert get(f"artifacts/{row['artifact_id']}")["content"] == "x"


def test_it_shows_a_lapsed_claim_and_a_lapsed_lease_as_what_they_count(five: None, call: Call, project: str) -> None:
    import time_machine

    handoff = get("handoffs", limit=1)["results"][0]["handoff_id"]
    call("handoff_claim", project_root=project, handoff_id=handoff, agent_id="agent4")
    call("inbox_pull", agent_id="agent4")
    assert len(get("deliveries", status="delivered")["results"]) == 2
    with time_machine.travel("2036-01-01"):
        assert get(f"handoffs/{handoff}") | {"status": "OPEN", "claimed_by": None} == get(f"handoffs/{handoff}")
        assert len(get("handoffs", status="OPEN")["results"]) == 5
        assert get("deliveries", status="delivered")["results"] == []
        assert {row["status"] for row in get("deliveries", recipient="agent4")["results"]} == {"unread"}


def test_it_tells_where_a_message_stands_with_each_recipient(five: None, call: Call, project: str) -> None:
    sent = call("message_create", project_root=project, from_agent_id="agent0", subject="all", body="b")["message_id"]
    call("inbox_pull", agent_id="agent1")
    states = {row["recipient"]: row["status"] for row in get(f"messages/{sent}")["deliveries"]}
    assert states == {"agent1": "delivered"} | {f"agent{number}": "unread" for number in (2, 3, 4)}


def test_it_shows_the_thread_of_a_message(five: None, call: Call, project: str) -> None:
    letter = {"project_root": project, "from_agent_id": "agent0", "subject": "s", "body": "b"}
    root = call("message_create", **letter)["message_id"]
    reply = call("message_create", **letter, parent_message_id=root)["message_id"]
    deeper = call("message_create", **letter, parent_message_id=reply)["message_id"]
    for of in (root, reply, deeper):
        found = get(f"messages/{of}/thread", ordering="message_id")["results"]
        assert [row["message_id"] for row in found] == [root, reply, deeper]
