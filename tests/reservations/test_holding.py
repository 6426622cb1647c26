"""Holding files: when a reservation ends, who may end it, and who had it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection

from coordination.models import Event
from inbox.monitoring import Picture
from nexus.core.apps import needs
from nexus.core.clock import now
from nexus.reservations import services
from nexus.reservations.guard.holdings import HELD
from nexus.reservations.models import Reservation
from tests.conftest import Call, does
from tests.reservations.conftest import Project
from tests.store import failing

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> Any:
    with time_machine.travel(NOON, tick=False) as traveller:
        yield traveller


def at(clock: Any, seconds: float) -> None:
    clock.move_to(NOON + timedelta(seconds=seconds))


def types() -> list[str]:
    return list(Event.objects.filter(stream="file").order_by("event_id").values_list("type", flat=True))


def test_it_ends_when_its_holder_is_not_heard_of(shop: Project, clock: Any) -> None:
    shop.reserve("ann", "src/", seconds=60)
    at(clock, 60)
    assert shop.in_the_way("bob", "src/") == [("ann", "/src/")]  # the last moment is within
    at(clock, 60.001)
    assert shop.held() == []
    assert shop.call("who", path="src/a.py")["last"] is None  # over, and not recorded yet
    shop.reserve("bob", "src/")
    last = shop.call("who", path="src/a.py")["last"]
    assert (last["agent_id"], last["outcome"]) == ("ann", "expired")
    assert types() == ["file.reserved", "file.expired", "file.reserved"]


@pytest.mark.parametrize("act", ["heartbeat", "message", "reserve"])
def test_it_lasts_while_its_holder_is_heard_of(shop: Project, call: Call, clock: Any, act: str) -> None:
    call("agent_register", agent_id="ann")
    workspace = call("workspace_resolve", project_root=str(shop.root))["workspace_id"]
    session = call("session_open", agent_id="ann", workspace_id=workspace)["session_id"]
    shop.reserve("ann", "src/", seconds=60)
    for minute in range(1, 6):
        at(clock, minute * 50)
        if act == "heartbeat":
            call("session_heartbeat", session_id=session)
        elif act == "message":
            call("message_create", project_root=str(shop.root), from_agent_id="ann", subject="s", body="b")
        else:
            shop.reserve("ann", f"docs/{minute}", seconds=10)
        assert ("ann", "/src/") in shop.held()
    at(clock, 250 + 61)
    assert shop.held() == []


def test_a_call_does_not_pay_for_all_that_ended_long_ago(
    shop: Project, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "RECORDED_AT_ONCE", 2)
    shop.reserve("ann", *"abcde", seconds=60)
    at(clock, 3600)
    shop.reserve("bob", "f")
    assert types().count("file.expired") == 1
    assert Reservation.objects.unended().filter(agent_id="ann").count() == 3


def test_it_is_not_brought_back_by_a_late_act(shop: Project, call: Call, clock: Any) -> None:
    call("agent_register", agent_id="ann")
    shop.reserve("ann", "src/", seconds=10)
    at(clock, 11)
    call("message_create", project_root=str(shop.root), from_agent_id="ann", subject="s", body="b")
    assert shop.held() == []


def test_it_is_extended_for_as_long_as_is_asked(shop: Project, clock: Any) -> None:
    [first, _] = shop.reserve("ann", "a.py", "b.py", seconds=60)
    at(clock, 30)
    [row] = shop.call("extend", agent_id="ann", reservation_ids=[first], seconds=3600)["extended"]
    assert row["expires_at"].startswith("2026-03-01T13:00:30")
    assert len(shop.call("extend", agent_id="ann", paths=["a.py", "b.py"])["extended"]) == 2
    assert len(shop.call("extend", agent_id="ann")["extended"]) == 2
    at(clock, 1000)
    assert shop.held() == [("ann", "/a.py")]
    error = shop.refused("extend", agent_id="ann", paths=["a.py", "b.py"])
    assert error["code"] == "INVALID_TRANSITION"
    assert "no reservation /b.py," in error["message"] and "files_reserve" in error["message"]
    assert error["details"] == {"held": [first], "not_held": ["/b.py"]}


def test_it_is_given_up_by_id_by_path_or_all_at_once(shop: Project) -> None:
    ids = shop.reserve("ann", "a.py", "b.py", "c.py", "d.py")
    shop.reserve("bob", "e.py")

    def given_up(**named: Any) -> list[str]:
        return [row["pattern"] for row in shop.call("release", agent_id="ann", **named)["released"]]

    assert given_up(reservation_ids=ids[:1]) == ["/a.py"]
    assert given_up(paths=["./b.py", "b.py"]) == ["/b.py"]
    assert given_up(reservation_ids=ids[:1]) == []
    assert given_up() == ["/c.py", "/d.py"]
    assert shop.held() == [("bob", "/e.py")]
    assert types() == ["file.reserved", "file.reserved", *["file.released"] * 3]


def test_it_says_what_is_still_held_of_a_path_that_is_no_reservation_of_its_own(shop: Project) -> None:
    [tree, read] = shop.reserve("ann", "src/", "*.md")
    shop.reserve("bob", "docs/a.py")

    data = shop.call("release", agent_id="ann", paths=["src/a.py"])

    assert data["released"] == []
    assert f"/src/ ({tree})" in data["warning"] and read not in data["warning"]
    assert "warning" not in shop.call("release", agent_id="ann", paths=["docs/a.py"])  # none of it is ann's
    assert "warning" not in shop.call("release", agent_id="ann", paths=["src/", "src/a.py"])
    assert shop.held() == [("ann", "*.md"), ("bob", "docs/a.py")]


def test_it_is_given_up_whatever_is_left_to_compare(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = shop.reserve("ann", "**/a*.py", "**/b*.py", "c.py")
    monkeypatch.setattr("nexus.reservations.selectors.MOST_COMPARED", 60)  # one of two patterns
    data = shop.call("release", agent_id="ann", paths=["c.py", "*/d.py"])
    assert [row["reservation_id"] for row in data["released"]] == ids[2:]
    assert "files_who" in data["warning"]


def test_it_tells_a_caller_of_so_many_holders_in_a_minute(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.reserve("ann", "**/a*.py", "**/b*.py")
    monkeypatch.setattr("nexus.reservations.selectors.MOST_COMPARED", 60)  # one of two patterns
    error = shop.refused("who", path="*/d.py")
    assert (error["code"], error["details"]["field"]) == ("VALIDATION_ERROR", "paths")
    assert "try again in a minute" in error["message"]


def test_it_tells_a_caller_of_so_many_former_holders(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.reserve("ann", "**/a*.py", "**/b*.py")
    shop.call("release", agent_id="ann")
    monkeypatch.setattr("nexus.reservations.selectors.MOST_COMPARED", 60)
    assert shop.refused("who", path="*/d.py")["code"] == "VALIDATION_ERROR"


def test_it_is_given_up_by_its_holder_alone(shop: Project) -> None:
    [mine] = shop.reserve("ann", "/a.py")
    error = shop.refused("release", agent_id="bob", reservation_ids=[mine])
    assert error["code"] == "NOT_OWNER"
    assert "'ann'" in error["message"]
    assert shop.refused("release", agent_id="bob", reservation_ids=["rsv_0"])["code"] == "NOT_FOUND"
    assert shop.call("release", agent_id="bob", paths=["a.py"])["released"] == []
    assert shop.held() == [("ann", "/a.py")]


def test_it_tells_who_has_a_path_and_who_had_it_last(shop: Project, clock: Any) -> None:
    shop.reserve("ann", "src/", reason="first")
    shop.call("release", agent_id="ann")
    at(clock, 5)
    shop.reserve("bob", "src/app.py", reason="second")
    shop.call("release", agent_id="bob")
    shop.reserve("cas", "src/*.py")
    found = shop.call("who", path="src/app.py")
    assert [(row["agent_id"], row["pattern"]) for row in found["held"]] == [("cas", "src/*.py")]
    assert (found["pattern"], found["held_count"], found["last"]["agent_id"]) == ("src/app.py", 1, "bob")
    assert shop.call("who", path="src/lib/x.py")["last"]["agent_id"] == "ann"
    assert shop.call("who", path="docs/")["last"] is None


def claimed(shop: Project, call: Call, agent: str = "ann", **more: Any) -> str:
    """A handoff that an agent holds."""
    for name in ("boss", agent):
        call("agent_register", agent_id=name)
    target = {"strategy": "direct", "agent_id": agent}
    root = str(shop.root)
    of = {"project_root": root, "from_agent_id": "boss", "target": target, "visibility": "public", **more}
    handoff: str = call("handoff_create", **of, payload="x")["handoff_id"]
    call("handoff_claim", project_root=root, handoff_id=handoff, agent_id=agent)
    return handoff


@pytest.mark.parametrize("ending", ["complete", "reject"])
@pytest.mark.usefixtures("committed")
def test_it_ends_with_the_handoff_that_it_is_for(shop: Project, call: Call, ending: str) -> None:
    handoff = claimed(shop, call)
    shop.reserve("ann", "src/", handoff_id=handoff)
    shop.reserve("ann", "/docs/")
    assert shop.in_the_way("bob", "src/a.py") == [("ann", "/src/")]
    call(f"handoff_{ending}", project_root=str(shop.root), handoff_id=handoff, agent_id="ann")
    assert shop.held() == [("ann", "/docs/")]
    assert shop.call("who", path="src/")["last"]["outcome"] == "settled"
    assert types()[-1] == "file.released"


@pytest.mark.usefixtures("committed")
def test_it_stays_while_a_verifier_looks_and_until_its_lease_ends(shop: Project, call: Call, clock: Any) -> None:
    root = str(shop.root)
    handoff = claimed(shop, call, verifier="creator")
    shop.reserve("ann", "src/", handoff_id=handoff, seconds=1800)
    of = {"project_root": root, "handoff_id": handoff}
    call("handoff_complete", **of, agent_id="ann")
    at(clock, 1000)
    call("message_create", project_root=root, from_agent_id="ann", subject="s", body="b")  # renews nothing
    assert shop.held() == [("ann", "/src/")]
    call("handoff_return", **of, agent_id="boss", reasons="no tests")
    assert shop.held() == [("ann", "/src/")]
    assert "so are the files" in call("inbox_peek", agent_id="ann")["messages"][-1]["body"]
    call("handoff_complete", **of, agent_id="ann")
    at(clock, 1801)
    assert shop.held() == []


@pytest.mark.usefixtures("committed")
def test_it_stays_when_an_operator_releases_its_handoff(shop: Project, call: Call) -> None:
    handoff = claimed(shop, call)
    shop.reserve("ann", "src/", handoff_id=handoff)
    does("handoff_release", handoff_id=handoff)
    assert shop.in_the_way("bob", "src/a.py") == [("ann", "/src/")]
    assert "stay yours until" in call("inbox_peek", agent_id="ann")["messages"][-1]["body"]
    assert shop.held() == enforced() == [("ann", "/src/")]


def enforced() -> list[tuple[str, str]]:
    """What the guard refuses to others."""
    moment = connection.ops.adapt_datetimefield_value(now())
    sql = f"SELECT r.agent_id, r.pattern FROM file_reservations r WHERE {HELD} ORDER BY 1, 2"
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("?", "%s"), [moment, moment])
        return list(cursor.fetchall())


@pytest.mark.usefixtures("committed")
@pytest.mark.parametrize("then", ["submitted", "returned", "released", "reassigned to it", "reassigned", "claimed"])
def test_it_stays_until_the_work_goes_to_another(shop: Project, call: Call, then: str) -> None:
    root = str(shop.root)
    handoff = claimed(shop, call, target={"strategy": "broadcast"}, verifier="creator")
    call("agent_register", agent_id="bob")
    shop.reserve("ann", "src/", handoff_id=handoff)
    of = {"project_root": root, "handoff_id": handoff}
    match then:
        case "submitted" | "returned":
            call("handoff_complete", **of, agent_id="ann")
        case "reassigned" | "reassigned to it":
            does("handoff_release", handoff_id=handoff)
            assert does("handoff_reassign", handoff_id=handoff, agent_id="bob" if then == "reassigned" else "ann")["ok"]
        case "released" | "claimed":
            does("handoff_release", handoff_id=handoff)
    if then == "returned":
        assert does("handoff_send_back", handoff_id=handoff, reasons="no tests")["ok"]
    if then == "claimed":
        call("handoff_claim", **of, agent_id="bob")
    ended = then in ("reassigned", "claimed")
    assert shop.held() == enforced() == ([] if ended else [("ann", "/src/")])
    assert (types()[-1] == "file.released") is ended  # who waits for the files wakes


@pytest.mark.usefixtures("committed")
def test_it_runs_out_after_its_handoff_was_released(shop: Project, call: Call, clock: Any) -> None:
    handoff = claimed(shop, call)
    shop.reserve("ann", "src/", handoff_id=handoff, seconds=1800)
    does("handoff_release", handoff_id=handoff)
    at(clock, 1000)
    call("message_create", project_root=str(shop.root), from_agent_id="ann", subject="s", body="b")  # renews nothing
    assert shop.held() == [("ann", "/src/")]
    at(clock, 1801)
    assert shop.held() == enforced() == []


@pytest.mark.usefixtures("committed")
def test_its_end_with_a_claim_leaves_in_sight_that_the_lease_ran_out(shop: Project, call: Call, clock: Any) -> None:
    handoff = claimed(shop, call)
    shop.reserve("ann", "src/", handoff_id=handoff, seconds=86_400)
    at(clock, 7200)
    call("handoff_list_available", project_root=str(shop.root), agent_id="ann")  # which records it
    assert types()[-1] == "file.released"
    lapsed = {kind.name: found.needs for kind, found in needs(Picture(now()), 3)}["lapsed"]
    assert [need.subject for need in lapsed] == [handoff]


def test_it_counts_no_more_when_its_handoff_ended_and_nobody_recorded_that(
    shop: Project, call: Call, clock: Any
) -> None:
    handoff = claimed(shop, call)  # in one transaction with the test: nobody is told of the commit
    shop.reserve("ann", "src/", handoff_id=handoff, seconds=3600)
    call("handoff_complete", project_root=str(shop.root), handoff_id=handoff, agent_id="ann")
    assert shop.held() == []
    assert shop.reserve("bob", "src/")
    at(clock, 1800)
    call("message_create", project_root=str(shop.root), from_agent_id="ann", subject="s", body="b")
    assert Reservation.objects.get(agent_id="ann").expires_at == NOON + timedelta(seconds=3600)  # renewed no more


def test_it_does_not_come_back_with_its_handoff_once_another_took_the_files(
    shop: Project, call: Call, clock: Any
) -> None:
    handoff = claimed(shop, call)  # in one transaction with the test: nobody is told of the commit
    shop.reserve("ann", "src/", handoff_id=handoff, seconds=3600)
    at(clock, 301)  # her claim has lapsed
    shop.reserve("bob", "src/a.py")

    call("handoff_claim", project_root=str(shop.root), handoff_id=handoff, agent_id="ann")

    assert shop.held() == [("bob", "src/a.py")]
    assert shop.call("who", path="src/b.py")["last"]["outcome"] == "settled"


def test_it_is_for_a_handoff_that_one_holds(shop: Project, call: Call) -> None:
    handoff = claimed(shop, call)
    error = shop.refused("reserve", agent_id="bob", paths=["a"], handoff_id=handoff)
    assert error["code"] == "INVALID_TRANSITION"
    assert "handoff_claim" in error["message"]
    assert shop.refused("reserve", agent_id="bob", paths=["a"], handoff_id="hnd_0")["code"] == "NOT_FOUND"
    assert not Reservation.objects.exists()


def test_it_is_ended_by_an_operator_and_its_holder_is_told(shop: Project, call: Call) -> None:
    call("agent_register", agent_id="ann")
    [mine] = shop.reserve("ann", "/src/")
    ended = shop.call("end", reservation_id=mine, reason="you are stuck")["reservation"]
    assert ended["outcome"] == "released"
    assert shop.held() == []
    [message] = call("inbox_pull", agent_id="ann")["messages"]
    assert "you are stuck" in message["body"]
    event = Event.objects.get(type="file.released")
    assert (event.actor_agent_id, event.payload["operator"], event.payload["holder"]) == (None, "ada", "ann")
    assert shop.refused("end", reservation_id=mine)["code"] == "INVALID_TRANSITION"
    assert shop.refused("end", reservation_id="rsv_0")["code"] == "NOT_FOUND"


def test_it_lists_reservations_for_operators_alone(shop: Project) -> None:
    from nexus.core.operations import dispatch
    from nexus.core.operations.caller import Caller
    from nexus.reservations.toolset import FILES

    shop.reserve("ann", "src/", reason="parser")
    shop.reserve("bob", "docs/")
    shop.call("release", agent_id="bob")
    assert [row["agent_id"] for row in shop.call("list", search="PARS")["reservations"]] == ["ann"]
    [ended] = shop.call("list", ended=True)["reservations"]
    assert (ended["agent_id"], ended["project_root"]) == ("bob", str(shop.root))
    assert shop.call("list", agent_id="bob")["reservations"] == []
    for verb in ("files_list", "files_end"):
        arguments = {"reservation_id": "rsv_0"} if verb == "files_end" else {}
        assert dispatch.run(FILES, Caller("test"), verb, arguments)["error"]["code"] == "NOT_OWNER"


@pytest.mark.usefixtures("committed")
def test_an_outage_as_a_claim_ends_leaves_no_traceback(
    shop: Project, call: Call, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What ended is in force no more, and is recorded later."""

    def away(handoff_id: str) -> None:
        asked.append(handoff_id)
        raise failing("away")

    asked: list[str] = []
    monkeypatch.setattr(services, "settle_reservations", away)
    call("agent_register", agent_id="ann")
    work = {"project_root": str(shop.root), "target": {"strategy": "broadcast"}, "visibility": "public"}
    made = call("handoff_create", from_agent_id="ann", **work)["handoff_id"]
    assert call("handoff_cancel", project_root=str(shop.root), handoff_id=made, agent_id="ann")
    assert asked == [made] and "Traceback" not in caplog.text
