"""The one way in: every input gets an envelope, every failure a documented code, no library's text leaves."""

from __future__ import annotations

import asyncio
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import DatabaseError, connection

from coordination.models import Agent, StoredSetting
from coordination.services import agents
from coordination.toolset import COORDINATION, arun, run
from nexus.core.operations import outside
from nexus.core.operations.caller import Caller
from nexus.core.operations.parameters import Params
from nexus.core.operations.registry import Operation
from nexus.core.operations.replies import Data
from tests.acceptance.hub import START_SECONDS
from tests.conftest import LOCAL, Call

TOOLS = {name: operation for name, operation in COORDINATION.operations.items() if operation.tool}
STRICT = {name: operation for name, operation in TOOLS.items() if not operation.accepts_anything}
PLAUSIBLE: dict[str, Any] = {
    "project_root": "/",
    "stream": "workspace",
    "target": {"strategy": "broadcast"},
    "visibility": "public",
    "message_ids": ["m"],
    "extend_seconds": 60,
    "workspace_id": "a" * 64,
    "artifact_type": "text",
    "verdict": "pass",
}


def arguments(operation: Operation[Any], **changes: Any) -> dict[str, Any]:
    """What the operation requires, each in a form that passes validation, and `changes`."""
    fields = operation.params.model_fields.items()
    required = [name for name, field in fields if field.is_required() or field.validate_default]
    return {**{name: PLAUSIBLE.get(name, "x") for name in required}, **changes}


def code_of(name: str, given: Any, caller: Caller = LOCAL) -> str | None:
    envelope = run(caller, name, given)
    assert set(envelope) - {"hint"} == ({"ok", "data"} if envelope["ok"] else {"ok", "error"})
    return None if envelope["ok"] else envelope["error"]["code"]


@pytest.mark.django_db
def test_it_takes_each_argument_in_its_own_type_alone() -> None:
    wrong = {"string": "text", "integer": 7, "boolean": True, "number": 1.5, "array": [{}], "object": {"no": 1}}
    schemas = {name: each.params.model_json_schema()["properties"] for name, each in STRICT.items()}
    for name, parameter, part in [(name, *each) for name, schema in schemas.items() for each in schema.items()]:
        kinds = {"object" if "$ref" in one else one.get("type", "any") for one in part.get("anyOf", [part])}
        if "any" in kinds:
            continue
        for kind in wrong.keys() - kinds - ({"integer"} if "number" in kinds else set()):
            code = code_of(name, arguments(STRICT[name], **{parameter: wrong[kind]}))
            assert code in ("VALIDATION_ERROR", "INVALID_STREAM"), (name, parameter, kind, code)


@pytest.mark.django_db
def test_it_names_each_argument_that_is_missing_or_unknown() -> None:
    for name, operation in STRICT.items():
        complete = arguments(operation)
        error = run(LOCAL, name, {**complete, "bogus": None})["error"]
        assert (error["code"], error["details"]) == ("VALIDATION_ERROR", {"field": "bogus"}), name
        assert "'bogus'" in error["message"]
        for missing in complete:
            error = run(LOCAL, name, {key: value for key, value in complete.items() if key != missing})["error"]
            assert error["details"] == {"field": missing}, name
            assert error["message"].startswith(f"{missing} is required.")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ids", "told"),
    [
        ([], "message_ids must hold at least 1."),
        (["m", 5], "message_ids[1] must be a string."),
        ("", "message_ids must not be empty."),
        (5, "message_ids must be a string."),
    ],
)
def test_it_tells_what_is_wrong_with_the_type_that_was_meant(refused: Call, ids: Any, told: str) -> None:
    assert refused("inbox_extend", agent_id="a", message_ids=ids, extend_seconds=60)["message"] == told


@pytest.mark.django_db
@pytest.mark.parametrize("name", sorted(STRICT))
def test_it_refuses_text_that_cannot_be_stored(name: str) -> None:
    for text in ("a\x00b", "\ud800", "ok \udfff"):
        for field, info in STRICT[name].params.model_fields.items():
            if info.annotation is str or "str" in str(info.annotation):
                code = code_of(name, arguments(STRICT[name], **{field: text}))
                assert code in ("VALIDATION_ERROR", "INVALID_STREAM"), field
        assert code_of(name, arguments(STRICT[name], **{text: 1})) == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    "value", [float("nan"), [float("-inf")], {"a": "\x00"}, {"\ud800": 1}, [["\x00"]], {"a": {"b\x00": None}}]
)
def test_it_refuses_json_that_cannot_be_stored(refused: Call, call: Call, value: Any) -> None:
    error = refused("agent_register", agent_id="ann", metadata=value)
    assert (error["code"], error["details"]) == ("VALIDATION_ERROR", {"field": "metadata"})
    assert call("agent_list")["agents"] == []


def test_it_bounds_the_nesting_of_json(call: Call, refused: Call) -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    assert call("agent_register", agent_id="ann", metadata=nested(64))["metadata"] == nested(64)
    for levels in (65, 10_000):
        assert refused("agent_register", agent_id="ann", metadata=nested(levels))["code"] == "VALIDATION_ERROR"


def test_it_takes_huge_integers_where_it_can_and_refuses_them_where_not(
    call: Call, refused: Call, project: str
) -> None:
    huge = 10**4000
    where = {"project_root": project, "agent_id": "ann", "stream": "workspace"}
    assert call("agent_register", agent_id="ann", metadata=huge)["metadata"] == huge
    assert call("event_get", **where, limit=huge)["events"] == []
    assert refused("event_get", **where, cursor=huge)["code"] == "VALIDATION_ERROR"
    assert call("event_wait", **where, timeout_seconds=-huge)["timed_out"] is True
    assert call("inbox_pull", agent_id="ann", limit=huge, lease_seconds=huge)["count"] == 0


def test_it_keeps_odd_unicode_as_it_came(call: Call, project: str) -> None:
    text = "é e\u0301 \u202e🏳️‍🌈 \ufeff\ufffe\U0010ffff \x01\x1b \r\n"
    made = call("artifact_put", project_root=project, artifact_type="text", name=text, content=text)
    got = call("artifact_get", project_root=project, artifact_id=made["artifact_id"])
    assert (got["name"], got["content"]) == (text, text)


def test_it_leaves_a_string_that_looks_like_json_the_string_it_is(call: Call, refused: Call, project: str) -> None:
    for text in ('{"a": 1}', "[1]", "null", "1", '"x"'):
        made = call("artifact_put", project_root=project, artifact_type="text", content=text, metadata=text)
        got = call("artifact_get", project_root=project, artifact_id=made["artifact_id"])
        assert (got["content"], got["metadata"]) == (text, text)
    where = {"project_root": project, "agent_id": "ann", "stream": "workspace"}
    assert refused("event_get", **where, filters='{"type": "x"}')["code"] == "VALIDATION_ERROR"


@pytest.mark.django_db
@pytest.mark.parametrize("given", [None, {}])
def test_it_reads_no_arguments_as_none_given(given: Any) -> None:
    assert code_of("agent_list", given) is None
    assert code_of("agent_get", given) == "VALIDATION_ERROR"


def test_it_answers_an_unknown_operation(refused: Call) -> None:
    for name in ("", "nope", "agent_list ", "AGENT_LIST", "x" * 10_000, "a\x00"):
        error = refused(name)
        assert error["code"] == "NOT_FOUND" and len(error["message"]) < 500, name


def test_it_lets_a_bound_connection_act_as_its_own_agent_alone(db: None) -> None:
    ann = Caller("test", agent_id="ann")
    for name, operation in STRICT.items():
        if operation.acts_as:
            error = run(ann, name, arguments(operation, **{operation.acts_as: "bob"}))["error"]
            assert (error["code"], error["details"]) == ("NOT_OWNER", {"field": operation.acts_as}), name
            assert code_of(name, arguments(operation, **{operation.acts_as: "ann"}), ann) != "NOT_OWNER", name


def test_it_keeps_a_bound_connection_off_the_sessions_of_others(call: Call, ann: str, workspace: str) -> None:
    session = call("session_open", agent_id=ann, workspace_id=workspace)["session_id"]
    for name in ("session_heartbeat", "session_close"):
        assert code_of(name, {"session_id": session}, Caller("test", agent_id="bob")) == "NOT_OWNER"
        assert code_of(name, {"session_id": session}, Caller("test", agent_id=ann)) is None


# What goes wrong below an operation


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception], str]:
    """Register an operation that raises; its name."""

    def register(error: Exception) -> str:
        def boom(p: Params, caller: Caller) -> Data:
            raise error

        monkeypatch.setitem(
            COORDINATION.operations, "boom", replace(COORDINATION.operations["nexus_info"], params=Params, call=boom)
        )
        return "boom"

    return register


@pytest.mark.parametrize("error", [ValueError("a library's text"), KeyError("secret"), RecursionError("deep")])
def test_it_hides_what_is_unexpected_and_logs_it(
    refused: Call, failing: Any, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    assert refused(failing(error)) == {
        "code": "INTERNAL_ERROR",
        "message": "An unexpected internal error occurred.",
        "details": {"exception": type(error).__name__},
    }
    assert "Traceback" in caplog.text


def test_it_tells_a_broken_store_without_the_librarys_text(
    committed: None, failing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    error = run(LOCAL, failing(DatabaseError("no such table: secret_table")), {})["error"]
    assert error["code"] == "DB_ERROR"
    assert "secret_table" not in str(error)
    assert "retryable" not in error.get("details", {})
    assert "secret_table" in caplog.text


@pytest.fixture
def busy(committed: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Another connection that holds the writer's lock; ours does not wait for it."""
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0)
    connection.close()
    with closing(sqlite3.connect(django_settings.NEXUS.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other
    connection.close()


@pytest.mark.sqlite
def test_it_gives_up_on_a_busy_store_and_says_that_trying_again_helps(
    busy: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("nexus.core.operations.dispatch.time.sleep", pauses.append)
    error = run(LOCAL, "agent_register", {"agent_id": "ann"})["error"]
    assert (error["code"], error["details"]) == ("DB_ERROR", {"retryable": True})
    assert len(pauses) == 2
    busy.execute("ROLLBACK")
    assert run(LOCAL, "agent_register", {"agent_id": "ann"})["ok"]


@pytest.mark.sqlite
def test_it_gets_through_when_the_writer_lets_go_in_time(
    busy: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nexus.core.operations.dispatch.time.sleep", lambda seconds: busy.execute("ROLLBACK"))
    assert run(LOCAL, "agent_register", {"agent_id": "ann"})["ok"]


@pytest.mark.sqlite
def test_it_repeats_nothing_that_was_committed(
    committed: None, busy: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deed(p: Params, caller: Caller) -> Data:
        agents.register(agent_id=f"agent-{Agent.everyone.count()}", given={})
        busy.execute("BEGIN IMMEDIATE")
        return {"agents": StoredSetting.objects.update(value="")}

    once = replace(COORDINATION.operations["agent_register"], params=Params, call=deed, acts_as=None)
    monkeypatch.setitem(COORDINATION.operations, "deed", once)
    monkeypatch.setattr("nexus.core.operations.dispatch.time.sleep", lambda seconds: busy.execute("ROLLBACK"))
    busy.execute("ROLLBACK")
    error = run(LOCAL, "deed", {})["error"]
    assert (error["code"], error["details"]) == ("DB_ERROR", {"retryable": True})
    assert Agent.everyone.count() == 1


@pytest.mark.parametrize("name", ["event_get", "inbox_pull", "inbox_peek", "inbox_count", "agent_list", "event_cursor"])
def test_it_reads_past_a_writer(busy: sqlite3.Connection, project: str, name: str) -> None:
    assert code_of(name, arguments(STRICT[name], **({"project_root": project} if "event" in name else {}))) is None


async def test_it_answers_the_same_from_an_event_loop(committed: None, tmp_path: Any) -> None:
    assert (await arun(LOCAL, "agent_register", {"agent_id": "ann"}))["ok"]
    assert (await arun(LOCAL, "agent_get", {"agent_id": "ann"}))["data"]["agent_id"] == "ann"
    assert (await arun(LOCAL, "agent_get", {}))["error"]["details"] == {"field": "agent_id"}
    assert (await arun(LOCAL, "nope", None))["error"]["code"] == "NOT_FOUND"
    bound = Caller("test", agent_id="bob")
    assert (await arun(bound, "inbox_pull", {"agent_id": "ann"}))["error"]["code"] == "NOT_OWNER"


async def test_it_lets_nobody_wait_for_a_path_that_does_not_answer(
    committed: None, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a mount does whose server is gone: the writer and the readers go on meanwhile."""
    answers, really, asked = threading.Event(), os.path.realpath, []

    def realpath(path: str, **how: Any) -> str:
        if path == "/hung":
            asked.append(threading.current_thread().name)
            answers.wait(START_SECONDS)
        return really(path, **how)

    monkeypatch.setattr(os.path, "realpath", realpath)
    monkeypatch.setattr(outside, "TIME_LIMIT_SECONDS", 0.05)
    remote = Caller("http", agent_id="ann")
    try:
        async with asyncio.timeout(START_SECONDS / 2):
            for name in ("artifact_put", "channel_create", "channel_list"):
                given = arguments(TOOLS[name], project_root="/hung")
                error = (await arun(remote, name, given))["error"]
                assert (error["code"], error["details"]) == ("WORKSPACE_UNRESOLVED", {"field": "project_root"})
            letter = {"project_root": project, "artifact_type": "text", "content": "c"}
            assert (await arun(remote, "artifact_put", letter))["ok"]
    finally:
        answers.set()
    assert len(asked) == 1 and asked[0].startswith("nexus-outside"), "it is asked once, while it does not answer"


async def test_it_asks_the_disk_once_for_the_calls_that_only_ask_where_a_project_is(
    committed: None, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And never on the event loop. Who goes on to use the disk asks anew: it may be gone."""
    really, asked = os.path.realpath, []

    def realpath(path: str, **how: Any) -> str:
        if path == project:
            asked.append(threading.current_thread().name)
        return really(path, **how)

    monkeypatch.setattr(os.path, "realpath", realpath)
    monkeypatch.setattr(outside, "RECENT_SECONDS", math.inf)
    outside._recent.clear()
    here = {"project_root": project, "agent_id": "ann", "stream": "workspace"}
    for name in ("event_cursor", "event_get", "event_wait"):
        assert (await arun(Caller("http", agent_id="ann"), name, here))["ok"]
    assert (await arun(Caller("stdio", agent_id="ann"), "event_get", here))["ok"]
    message = {"project_root": project, "from_agent_id": "ann", "subject": "s", "body": "b"}
    assert (await arun(Caller("http", agent_id="ann"), "message_create", message))["ok"]
    assert len(asked) == 1 and asked[0].startswith("nexus-outside")
    letter = {"project_root": project, "artifact_type": "text", "content": "c"}
    assert (await arun(Caller("http", agent_id="ann"), "artifact_put", letter))["ok"]
    assert len(asked) == 2


async def test_a_project_that_is_made_is_found_by_the_next_call(committed: None, tmp_path: Path) -> None:
    here = {"project_root": str(tmp_path / "new"), "agent_id": "ann", "stream": "workspace"}
    assert (await arun(Caller("http", agent_id="ann"), "event_get", here))["error"]["code"] == "WORKSPACE_UNRESOLVED"
    (tmp_path / "new").mkdir()
    assert (await arun(Caller("http", agent_id="ann"), "event_get", here))["ok"]
