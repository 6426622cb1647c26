"""Settings at run time: flag over environment over stored over default."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.conf import settings as django_settings

from coordination.config import CoordinationSettings
from coordination.models import AgentLimits, Event, LimitScope, StoredSetting
from coordination.services import agent_limits
from coordination.services import settings as stored
from coordination.toolset import run
from inbox.config import InboxSettings
from nexus.core.clock import now
from nexus.core.config import TABLE
from nexus.core.operations.caller import Caller
from nexus.core.waiting import with_store
from tests.conftest import Call
from tests.core.waiting import LONG

OLGA = Caller("rest", operator="olga")


@pytest.fixture(autouse=True)
def fresh(transactional_db: None, committed: None, settings: Any) -> Iterator[None]:
    """Settings that nobody has stored, before and after."""
    settings.NEXUS = django_settings.NEXUS  # restored after the test
    yield
    StoredSetting.objects.all().delete()
    stored.apply()


def store(**values: Any) -> dict[str, Any]:
    return run(OLGA, "settings_update", {"values": values})


def listed(name: str) -> dict[str, Any]:
    rows = run(OLGA, "settings_list", {})["data"]["settings"]
    row: dict[str, Any] = next(row for row in rows if row["name"] == name)
    return row


def test_it_applies_a_stored_setting_at_once_in_the_process_that_stored_it(refused: Call) -> None:
    assert store(max_inline_bytes=10)["ok"]
    assert refused("agent_register", agent_id="ana", metadata="x" * 20)["code"] == "CONTENT_TOO_LARGE"
    assert store(max_inline_bytes=None)["ok"]
    assert django_settings.NEXUS.max_inline_bytes == 65_536


def test_it_stores_where_the_projects_of_containers_are(tmp_path: Path, call: Call) -> None:
    assert store(project_paths=f"/workspaces/shop={tmp_path}")["ok"]
    assert call("workspace_resolve", project_root="/workspaces/shop")["root_realpath"] == str(tmp_path)
    assert "absolute paths" in store(project_paths="shop")["error"]["message"]
    assert "must be a string" in store(project_paths=5)["error"]["message"]
    assert listed("project_paths")["value"] == f"/workspaces/shop={tmp_path}"


def test_it_applies_what_another_process_stored_with_the_first_call_a_second_later(call: Call) -> None:
    with time_machine.travel(0, tick=False) as clock:
        call("agent_list")
        StoredSetting.objects.create(
            name="trust_mode", value="strict", updated_at="2026-01-01T00:00Z", updated_by="olga"
        )
        call("agent_list")
        assert CoordinationSettings.current().trust_mode == "open"
        clock.shift(1)
        call("agent_list")
        assert CoordinationSettings.current().trust_mode == "strict"
        StoredSetting.objects.all().delete()
        clock.shift(1)
        call("agent_list")
    assert CoordinationSettings.current().trust_mode == "open"


def test_it_looks_at_the_store_once_a_second_however_many_calls_there_are(
    call: Call, django_assert_num_queries: Any
) -> None:
    with time_machine.travel(0, tick=False) as clock:
        clock.shift(1)
        with django_assert_num_queries(3):  # for the settings, the limits of agents, and what a wrong clock prolonged
            for _ in range(50):
                stored.refresh()


def test_it_says_where_each_value_comes_from() -> None:
    store(trust_mode="strict")
    assert (listed("trust_mode")["value"], listed("trust_mode")["source"]) == ("strict", "stored")
    assert listed("max_event_limit")["source"] == "default"
    assert listed("home")["source"] == "environment" and listed("home")["pinned"]
    assert {row["name"] for row in run(OLGA, "settings_list", {})["data"]["settings"]} == set(TABLE)
    assert listed("busy_timeout_ms")["applies"] == "at start"
    assert (listed("max_event_limit")["minimum"], listed("trust_mode")["choices"]) == (1, ["open", "strict"])


def test_a_stored_value_that_is_no_setting_any_more_is_named_and_may_go(caplog: pytest.LogCaptureFixture) -> None:
    kept = {"pool_hang_seconds": "5", "retention_ended_pool_turns_keep_days": "3650"}
    for name, value in kept.items():
        StoredSetting.objects.create(name=name, value=value, updated_at="2026-01-01T00:00Z", updated_by="olga")
    stored.apply()
    stored.apply()
    assert caplog.text.count("pool_hang_seconds is stored and no setting any more: it is always 30.") == 1
    row = listed("retention_keep_days")
    assert (row["value"], row["source"]) == (3650, "stored"), "nothing is deleted early"
    assert store(pool_hang_seconds=5)["error"]["code"] == "VALIDATION_ERROR"
    assert store(**dict.fromkeys(kept))["ok"]
    assert not StoredSetting.objects.exists() and listed("retention_keep_days")["value"] == 90


@pytest.mark.parametrize("origin", ["flag", "environment"])
def test_it_refuses_to_edit_what_a_flag_or_a_variable_pins(origin: str, settings: Any) -> None:
    settings.NEXUS_SOURCES = {**settings.NEXUS_SOURCES, "trust_mode": origin}
    error = store(trust_mode="strict")["error"]
    assert error["code"] == "CONFIG_ERROR"
    assert ("--trust-mode" if origin == "flag" else "NEXUS_TRUST_MODE") in error["message"]
    StoredSetting.objects.create(name="trust_mode", value="strict", updated_at="2026-01-01T00:00Z", updated_by="olga")
    stored.apply()
    assert CoordinationSettings.current().trust_mode == "open"
    assert listed("trust_mode")["source"] == origin


@pytest.mark.parametrize("name", ["db_path", "durability", "busy_timeout_ms"])
def test_it_refuses_to_store_what_only_a_start_can_set(name: str) -> None:
    assert store(**{name: "full"})["error"]["code"] == "CONFIG_ERROR"


@pytest.mark.parametrize(
    "values",
    [
        {"nonsense": 1},
        {"max_event_limit": 0},
        {"max_event_limit": 2**40},
        {"max_event_limit": "10"},
        {"max_event_limit": True},
        {"max_event_limit": 1.5},
        {"trust_mode": "lax"},
        {"auto_prune_on_start": 1},
        {"trust_mode": ["open"]},
        {"trust_mode": "strict", "max_event_limit": 0},
        {},
    ],
)
def test_it_stores_all_of_the_values_or_none(values: dict[str, Any]) -> None:
    assert store(**values)["error"]["code"] == "VALIDATION_ERROR"
    assert not StoredSetting.objects.exists()


def test_it_records_who_changed_what() -> None:
    store(trust_mode="strict")
    store(trust_mode=None)
    changes = [event.payload for event in Event.objects.filter(type="setting.changed").order_by("event_id")]
    assert changes == [
        {"name": "trust_mode", "value": "strict", "before": None, "operator": "olga"},
        {"name": "trust_mode", "value": None, "before": "strict", "operator": "olga"},
    ]


def test_it_passes_over_what_it_does_not_understand() -> None:
    for name, value in (("nonsense", "1"), ("max_event_limit", "many")):
        StoredSetting.objects.create(name=name, value=value, updated_at="2026-01-01T00:00Z", updated_by="olga")
    stored.apply()
    assert CoordinationSettings.current().max_event_limit == TABLE["max_event_limit"].default


@pytest.mark.parametrize("what", ["a setting", "limits"])
def test_an_older_reading_does_not_replace_a_newer_one(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by = {"updated_at": now(), "updated_by": "ada"}
    StoredSetting.objects.create(name="inbox_lease_ttl_seconds", value="5", **by)
    row = {"scope": LimitScope.AGENT, "name": "ann", **by}
    AgentLimits.objects.create(**row, values={"messages_per_minute": 5})
    monkeypatch.setattr(agent_limits, "_kept", {})
    module, part = (stored, "_value") if what == "a setting" else (agent_limits, "StoredLimits")
    really, read, changed = getattr(module, part), threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        if threading.current_thread() is first:
            read.set()
            assert changed.wait(LONG)
            second.join(0.5)  # which has to wait for the first
        return really(*given)

    monkeypatch.setattr(module, part, slow)
    first = threading.Thread(target=with_store, args=(module.apply,))
    second = threading.Thread(target=with_store, args=(module.apply,))
    first.start()
    assert read.wait(LONG)
    StoredSetting.objects.update(value="6")
    AgentLimits.objects.update(values={"messages_per_minute": 6})
    second.start()
    changed.set()
    for thread in (first, second):
        thread.join(LONG)
    applied = InboxSettings.current().inbox_lease_ttl_seconds, agent_limits.limit("messages_per_minute", "ann")
    assert applied[what == "limits"] == 6
