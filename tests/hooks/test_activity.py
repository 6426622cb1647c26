"""What others learn of an agent in somebody's terminal: its client's hooks tell it, and a running waiter proves that it
can be woken."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import time_machine
from django.conf import settings
from django.core.management import call_command
from django.test import Client
from time_machine import Traveller

from coordination.models import Event, Session
from coordination.toolset import run
from inbox.monitoring import Picture
from nexus.core import apps as nexus_apps
from nexus.core.clock import now
from nexus.core.coding_clients import WAKE
from nexus.core.harness_events import Activity
from nexus.core.operations.caller import Caller
from nexus.hooks import announcements, entry, harness, hook_state, signal_files, store_queries
from nexus.hooks.harness import HookCall
from tests.conftest import Call, does

Tell = Callable[..., None]
DIRECT = {"strategy": "direct", "agent_id": "ben"}


@pytest.fixture
def hooked(project: str, db: None) -> HookCall:
    return HookCall("claude-code", None, project, "ben")


@pytest.fixture
def clock() -> Iterator[Traveller]:
    """Noon; the test moves it on."""
    with time_machine.travel(datetime(2026, 3, 10, 12, 0, tzinfo=UTC)) as traveller:
        yield traveller


@pytest.fixture
def tell(hooked: HookCall) -> Tell:
    """A call of ben's hook, with the fields of its input; its client first."""

    def tell(name: str, client: str = "claude-code", **fields: Any) -> None:
        payload = json.dumps({"hook_event_name": name, "cwd": hooked.root, **fields})
        made = harness.parse_call(["--client", client, "--agent", "ben"], {}, payload)
        nexus: Any = settings.NEXUS
        entry.respond(nexus, made, store_queries.answer)

    return tell


@contextmanager
def waiter(call: HookCall) -> Iterator[None]:
    """As if a waiter were at work for this agent."""
    nexus: Any = settings.NEXUS
    place = nexus.home / "hooks" / f"{hook_state.hook_id(call.agent_id, call.root)}.session.waiter"
    place.touch(mode=0o600)
    with place.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    place.unlink()


def state(call: Call) -> str:
    return str(call("agent_get", agent_id="ben")["activity"]["state"])


def sent(project: str) -> dict[str, Any]:
    """What somebody is answered who writes to ben."""
    letter = {"project_root": project, "from_agent_id": "ann", "subject": "s", "body": "b", "target": DIRECT}
    data: dict[str, Any] = run(Caller(transport="test"), "message_create", letter)["data"]
    return data


def test_each_change_of_what_an_agent_does_is_told(tell: Tell, hooked: HookCall, call: Call) -> None:
    tell("SessionStart", source="startup")
    assert state(call) == "asleep"
    for name, fields, expected in (
        ("UserPromptSubmit", {}, "working"),
        ("PreCompact", {"trigger": "auto"}, "compacting"),
        ("SessionStart", {"source": "compact"}, "working"),
        ("Notification", {"notification_type": "permission_prompt"}, "asks"),
        ("Notification", {"notification_type": "auth_success"}, "asks"),
        ("PostToolUse", {"tool_name": "Bash"}, "working"),
        ("StopFailure", {"error": "rate_limit"}, "out_of_quota"),
        ("UserPromptSubmit", {}, "working"),
        ("StopFailure", {"error": "server_error"}, "asleep"),
        ("UserPromptSubmit", {}, "working"),
        ("Notification", {"notification_type": "idle_prompt"}, "asleep"),
        ("PreCompact", {"trigger": "manual"}, "asleep"),
        ("SessionEnd", {"reason": "clear"}, "asleep"),
        ("UserPromptSubmit", {}, "working"),
        ("Stop", {"stop_hook_active": True}, "asleep"),
        ("SessionEnd", {"reason": "prompt_input_exit"}, "gone"),
        ("SessionStart", {"source": "startup"}, "asleep"),
    ):
        tell(name, **fields)
        assert state(call) == expected, (name, fields)
    with waiter(hooked):
        assert state(call) == "idle"


@pytest.mark.parametrize(
    ("client", "name", "fields", "expected"),
    [
        ("codex", "PermissionRequest", {"tool_name": "Bash"}, "asks"),
        ("codex", "PreCompact", {"trigger": "auto"}, "compacting"),
        ("opencode", "Interrupt", {}, "asleep"),
        ("opencode", "StopFailure", {"error": "rate_limit"}, "out_of_quota"),
        ("opencode", "Notification", {"notification_type": "permission_prompt"}, "asks"),
        ("codex", "Interrupt", {}, "asleep"),
        ("codex", "SessionEnd", {"reason": "other"}, "gone"),
        ("gemini", "Notification", {"notification_type": "ToolPermission"}, "asks"),
        ("gemini", "AfterAgent", {}, "asleep"),
        ("gemini", "SessionEnd", {"reason": "exit"}, "gone"),
        ("cursor", "preCompact", {"trigger": "auto"}, "compacting"),
        ("cursor", "stop", {"status": "completed"}, "asleep"),
        ("cursor", "sessionEnd", {"reason": "user_close"}, "gone"),
    ],
)
def test_each_client_has_its_own_names(
    tell: Tell, call: Call, client: str, name: str, fields: dict[str, Any], expected: str
) -> None:
    tell({"gemini": "BeforeAgent", "cursor": "beforeSubmitPrompt"}.get(client, "UserPromptSubmit"), client)
    assert state(call) == "working"
    tell(name, client, **fields)
    assert state(call) == expected


def test_a_turn_costs_two_writes(tell: Tell, hooked: HookCall) -> None:
    tell("UserPromptSubmit")
    before = Event.objects.count()
    for _ in range(10):
        tell("PostToolUse", tool_name="Edit")
    assert Event.objects.count() == before
    tell("Stop")
    assert Event.objects.latest("event_id").payload["activity"] == "idle"


def test_a_call_that_was_slow_changes_nothing(tell: Tell, hooked: HookCall, call: Call) -> None:
    tell("UserPromptSubmit")
    moment = now().timestamp()
    tell("Stop")
    store_queries.refresh(hooked, activity=Activity.WORKING, at=moment)
    assert state(call) == "asleep"
    tell("SessionEnd", reason="other")
    store_queries.refresh(hooked, activity=Activity.IDLE, at=moment)
    assert (state(call), Session.objects.count()) == ("gone", 1)


def test_an_agent_without_a_sign_of_life_is_gone_unless_its_waiter_runs(
    tell: Tell, hooked: HookCall, call: Call, clock: Traveller
) -> None:
    tell("Stop")
    clock.shift(3600)
    assert state(call) == "gone"
    with waiter(hooked):
        assert state(call) == "idle"


def test_of_two_sessions_the_busier_counts(tell: Tell, hooked: HookCall, call: Call, tmp_path: Path) -> None:
    tell("UserPromptSubmit")
    tell("Stop", cwd=str(tmp_path))
    assert state(call) == "working"


def test_an_agent_is_gone_when_its_last_session_ends(tell: Tell, hooked: HookCall, call: Call) -> None:
    tell("Stop", session_id="s1")
    with waiter(hooked):  # of another terminal
        tell("SessionEnd", session_id="s1", reason="other")
        assert state(call) == "idle"
    tell("SessionEnd", session_id="s2", reason="other")
    assert state(call) == "gone"


def test_somebody_who_only_looks_tells_nothing(tell: Tell, call: Call) -> None:
    nexus: Any = settings.NEXUS
    entry.respond(nexus, harness.parse_call(["--client", "text", "--agent", "ben"], {}, ""), store_queries.answer)
    assert "activity" not in call("agent_get", agent_id="ben")


@pytest.mark.parametrize(
    ("words", "until"),
    [
        ("You've hit your session limit · resets 2:30pm (Europe/Berlin)", "2026-03-10T13:30"),
        ("You've hit your session limit · resets 1am (UTC)", "2026-03-11T01:00"),
        ("You've hit your weekly limit · resets Mar 12, 12am (UTC)", "2026-03-12T00:00"),
        ("You've hit your weekly limit · resets Jan 2 at 3pm (UTC)", "2027-01-02T15:00"),
        ("API Error: Rate limit reached", None),
        ("resets 3pm (Nowhere/Else)", None),
        ("resets Feb 31, 3pm (UTC)", None),
        ("resets 3pm (../../etc/passwd)", None),
        (["resets 25pm (UTC)"], None),
    ],
)
def test_the_words_of_the_client_say_when_its_quota_is_back(
    tell: Tell, call: Call, clock: Traveller, words: Any, until: str | None
) -> None:
    tell(name="StopFailure", error="rate_limit", last_assistant_message=words)
    activity = call("agent_get", agent_id="ben")["activity"]
    assert activity["state"] == "out_of_quota"
    assert activity.get("until", "")[:16] == (until or "")
    if until:
        clock.move_to(datetime.fromisoformat(f"{until}:01+00:00"))
        assert state(call) in ("asleep", "gone")


def test_a_sender_learns_that_its_message_waits(
    tell: Tell, hooked: HookCall, call: Call, project: str, clock: Traveller
) -> None:
    tell("UserPromptSubmit")
    assert "warning" not in sent(project)
    tell("StopFailure", error="rate_limit", last_assistant_message="resets 2pm (UTC)")
    waits = "ben is out of quota until 2026-03-10 14:00 UTC; what you sent waits. handoff_create with the target "
    waits += "direct_with_fallback lets another agent take it."
    offer = {"project_root": project, "from_agent_id": "ann", "target": DIRECT, "visibility": "public", "payload": "p"}
    assert sent(project)["warning"] == call("handoff_create", **offer)["warning"] == waits
    tell("UserPromptSubmit")
    tell("Stop")
    assert sent(project)["warning"].startswith("ben is idle and cannot be woken (hook of claude-code; no waiter runs)")
    with waiter(hooked):
        assert "warning" not in sent(project)


# What a person sees of it


def needs() -> list[str]:
    found = nexus_apps.needs(Picture(now()), 10)
    return [need.title for kind, items in found if kind.name in ("attached", "silent") for need in items.needs]


def test_a_person_sees_who_waits_for_one(
    tell: Tell, hooked: HookCall, call: Call, project: str, clock: Traveller, admin_client: Client
) -> None:
    tell("Notification", notification_type="permission_prompt")
    assert needs() == []  # somebody may be answering it
    clock.shift(61)
    assert needs() == ["ben is waiting for you"]
    tell("StopFailure", error="rate_limit")
    sent(project)
    store_queries.waiting(hooked._replace(event=WAKE), [])
    clock.shift(301)
    assert needs() == ["ben is out of quota"], "in one row, whatever else is true"
    for page in ("/admin/coordination/agent/", "/admin/agents/ben/"):
        assert "out of quota" in admin_client.get(page).content.decode()


def test_a_wake_that_brought_no_pull_is_shown(
    tell: Tell, hooked: HookCall, call: Call, project: str, clock: Traveller
) -> None:
    tell("Stop")
    sent(project)
    store_queries.waiting(hooked._replace(event=WAKE), [])
    assert needs() == ["ben is idle, cannot be woken with unread mail"]
    clock.shift(301)
    assert needs() == ["ben was woken, and did not pull its mail"]
    with waiter(hooked):
        assert needs() == ["ben was woken, and did not pull its mail"]
    call("inbox_pull", agent_id="ben")
    assert needs() == []


# Muted


def test_nothing_wakes_a_muted_agent(
    committed: None,
    tell: Tell,
    hooked: HookCall,
    call: Call,
    project: str,
    clock: Traveller,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nexus: Any = settings.NEXUS
    tell("Stop")
    sent(project)
    waking = hooked._replace(event=WAKE)

    def found() -> Any:
        return announcements.seen(nexus, waking, store_queries.answer)

    assert found().personal
    with pytest.raises(SystemExit):
        call_command("mute", "ben", "1h")
    assert "muted until" in capsys.readouterr().out
    seen = found()
    assert (bool(seen.waiting), bool(seen.personal)) == (True, False)
    assert seen.changes_at - now().timestamp() == pytest.approx(3600, abs=60)
    before = signal_files.stamp(nexus.home, "ben")
    assert does("agent_mute", agent_id="ben", lasting="0")["ok"]
    assert found().personal and signal_files.stamp(nexus.home, "ben") != before
    assert does("agent_mute", agent_id="ben", lasting="1h")["ok"]
    with waiter(hooked):
        assert (state(call), "an operator muted it" in sent(project)["warning"]) == ("asleep", True)
        clock.shift(3601)
        assert (state(call), bool(found().personal)) == ("idle", True)


def test_an_operator_mutes_an_agent_on_its_page(call: Call, clock: Traveller, admin_client: Client) -> None:
    call("agent_register", agent_id="ben")

    def page() -> str:
        return str(admin_client.get("/admin/agents/ben/").content.decode())

    def muted() -> bool:
        return "<time" in page().partition("Muted until")[2].partition("Profile")[0]

    assert 'value="agent_mute ben"' in page() and not muted()
    admin_client.post("/admin/act/", {"do": "agent_mute", "on": ["ben"], "asked": "1", "lasting": "2h"})
    assert muted()
    clock.shift(7201)
    assert not muted()


@pytest.mark.parametrize("lasting", ["", "1", "1w", "-1h", "31d", "1.5h", "00h", "9999999d"])
def test_only_a_time_mutes(call: Call, lasting: str) -> None:
    call("agent_register", agent_id="ben")
    error = does("agent_mute", agent_id="ben", lasting=lasting)["error"]
    assert (error["code"], "such as 30m, 1h or 2d" in error["message"]) == ("VALIDATION_ERROR", True)
