"""Every operation, in sequences, with near-valid and absurd arguments: an envelope, and a code that it documents."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from coordination.services import settings as stored_settings
from coordination.toolset import COORDINATION, run
from nexus.core.config import TABLE
from nexus.core.operations.caller import Caller
from nexus.core.operations.errors import Code
from tests.conftest import LOCAL, examples
from tests.coordination.test_routing import ALMOST, JSON

Pool = dict[str, list[Any]]  # what a parameter of that name may well hold

CALLERS = [LOCAL, Caller("test", agent_id="ana"), Caller("test", agent_id="ghost"), Caller("test", operator="olga")]
SAME = {"from_agent_id": "agent_id", "from_session_id": "session_id", "parent_message_id": "message_id"}
SAME |= dict.fromkeys(("content", "subject", "body", "reason"), "text")
TEXTS = [
    *("", " ", "a" * 256, "a" * 70_000, "\x00", "\ud800", "e\u0301\u202e🏳️‍🌈\ufffe"),
    *("%s {0} $x", "' OR 1=1 --", "null"),
]
NUMBERS = [-1, 0, 1, 10, 3600, 2**31, 2**63 - 1, 2**63, -(2**63), 10**400, 0.5, 1e308, float("nan"), float("inf")]
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
ODD = st.sampled_from([*TEXTS, *NUMBERS, None, True, False, [], {}, [None], DEEP]) | JSON


@dataclass
class Filled:
    """A store with something of everything, and what its rows are called."""

    template: sqlite3.Connection
    pool: Pool

    def again(self) -> Pool:
        """Bring the store back to how it was, whatever the last sequence did; what a new one may draw from."""
        connection.close()
        with closing(sqlite3.connect(django_settings.NEXUS.database, timeout=30)) as store:
            self.template.backup(store)
        stored_settings.apply()
        return {kind: list(values) for kind, values in self.pool.items()}


@pytest.fixture
def filled(committed: None, configure: Any, project: str) -> Iterator[Filled]:
    configure(max_wait_timeout_seconds=0)
    (Path(project) / "notes.md").write_text("notes")
    direct = {"strategy": "direct", "agent_id": "bob"}
    pool: Pool = {
        "project_root": [project, "/", "", ".", f"{project}/notes.md", f"{project}/none", "a/" * 3000],
        "stream": ["workspace", "agent", "handoff"],
        "visibility": ["public", "eligible", "private"],
        "artifact_type": ["text", "json", "markdown", "file"],
        "path": ["notes.md", "../x", "/etc/passwd", "none.md", ".", "a" * 4096],
        "name": ["general", "reviews", "x" * 255],
        "target": [direct, None, {"strategy": "broadcast"}, {"strategy": "capability", "capability": ["ocr", "x"]}],
        "capabilities": ["ocr", ["ocr", ""], {"ocr": True, "x": 0}],
        "filters": [{"type": "message.created"}, {"agent_id": "ana", "task_id": None}, {"no": "x"}],
        "timeout_seconds": [0, 1, None],
        "confirm": ["reset"],
        "max_batches": [1],
        "values": [{name: field.default} for name, field in TABLE.items() if name != "max_wait_timeout_seconds"]
        + [{"trust_mode": "strict"}, {"max_inline_bytes": 1}, {"handoff_lease_ttl_seconds": True}, {"nope": 1}],
        "url": "http://127.0.0.1:9/ https://example.com/hook ftp://x http:// http://[::1 http://x:99999".split(),
        "types": [["message.created"], ["*"]],
        "text": ["hello", '{"a": 1}'],
    }

    def learn(name: str, /, **arguments: Any) -> dict[str, Any]:
        return grow(pool, run(Caller("test", operator="olga"), name, arguments))["data"]  # type: ignore[no-any-return]

    place = learn("workspace_resolve", project_root=project)["workspace_id"]
    for agent_id in ("ana", "bob"):
        learn("agent_create", agent_id=agent_id, role="worker", capabilities=["ocr"])
        learn("session_open", agent_id=agent_id, workspace_id=place)
    post = {"project_root": project, "from_agent_id": "ana", "subject": "s", "body": "b", "target": direct}
    read = [learn("message_create", **post)["message_id"] for _ in range(4)][:2]
    learn("inbox_pull", agent_id="bob", limit=3)
    learn("inbox_ack", agent_id="bob", message_ids=read)
    learn("inbox_history", agent_id="bob", limit=1)
    offer = {"project_root": project, "from_agent_id": "ana", "visibility": "public"}
    offered = [learn("handoff_create", **offer, target=pool["target"][2])["handoff_id"] for _ in range(4)]
    for handoff_id in offered[:2]:
        learn("handoff_claim", project_root=project, handoff_id=handoff_id, agent_id="bob")
    learn("handoff_complete", project_root=project, handoff_id=offered[0], agent_id="bob")
    learn("artifact_put", project_root=project, artifact_type="text", content="x")
    learn("channel_create", project_root=project, name="reviews")
    learn("webhook_add", url="http://127.0.0.1:9/", allow_private=True)
    connection.close()
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as template:
        with closing(sqlite3.connect(django_settings.NEXUS.database)) as store:
            store.backup(template)
        yield (filled := Filled(template, pool))
        filled.again()


def grow(pool: Pool, envelope: dict[str, Any]) -> dict[str, Any]:
    """Add the ids, secrets and cursors of an answer to the pool."""
    pending: list[Any] = [envelope.get("data")]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
            for key, part in value.items():
                kind = "cursor" if key == "next_cursor" else key
                if kind.endswith(("_id", "_secret", "cursor")) and isinstance(part, str | int):
                    pool.setdefault(kind, []).append(part)
    return envelope


@st.composite
def calls(draw: st.DrawFn, pool: Pool) -> tuple[Caller, str, dict[str, Any]]:
    """A caller, an operation, and arguments that may fit, of which none, one or two are spoiled."""
    name = draw(st.sampled_from(sorted(COORDINATION.operations)))
    fields = COORDINATION.operations[name].params.model_fields
    given = [field for field, info in fields.items() if info.is_required() or draw(st.integers(0, 5)) == 5]
    arguments = {field: draw(fitting(field, pool)) for field in given}
    for field in draw(st.just([]) | st.lists(st.sampled_from([*fields, "unknown"]), max_size=2)):
        arguments[field] = draw(spoiled(field, pool))
    return CALLERS[draw(st.sampled_from([0, 0, 3, 3, 1, 2]))], name, arguments


def fitting(field: str, pool: Pool) -> st.SearchStrategy[Any]:
    """What a parameter of this name may well hold."""
    if field in ("message_ids", "artifacts"):
        return st.lists(st.sampled_from(pool["message_id" if field == "message_ids" else "artifact_id"]), max_size=4)
    kind = SAME.get(field, field)
    if kind not in pool:  # flags, sizes and durations
        return st.sampled_from([10, 1, 3600, 0, True, False, None])
    return st.sampled_from([pool[kind][0]] * 8 + pool[kind][1:])


def spoiled(field: str, pool: Pool) -> st.SearchStrategy[Any]:
    """Something near what fits, something of another kind, or anything."""
    near = fitting(field, pool).map(lambda given: given + "x" if isinstance(given, str) else [given])
    return near | ODD | (ALMOST if field == "target" else st.sampled_from(NUMBERS))


@cache
def shape(name: str) -> TypeAdapter[Any]:
    """What an operation is declared to answer."""
    declared: Any = COORDINATION.operations[name].data
    return TypeAdapter(declared)


def check(caller: Caller, name: str, envelope: dict[str, Any]) -> None:
    """The envelope, with data of the shape that the operation declares, or a code that it documents."""
    json.dumps(envelope, allow_nan=False, ensure_ascii=False).encode()
    if envelope["ok"]:
        assert set(envelope) - {"hint"} == {"ok", "data"}
        shape(name).validate_python(envelope["data"], strict=True, extra="forbid")
        return
    error = envelope["error"]
    assert set(envelope) == {"ok", "error"} and set(error) <= {"code", "message", "details"}
    assert error["message"] and error.get("details", True)
    documented = {*COORDINATION.operations[name].errors, Code.VALIDATION_ERROR}
    if caller.agent_id is not None or COORDINATION.operations[name].operator_only:
        documented.add(Code.NOT_OWNER)
    assert error["code"] in documented


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_it_answers_any_sequence_of_calls_with_codes_that_the_operations_document(
    filled: Filled, data: st.DataObject
) -> None:
    pool = filled.again()
    for _ in range(data.draw(st.integers(1, 12), "calls")):
        caller, name, arguments = data.draw(calls(pool), "call")
        envelope = run(caller, name, arguments)
        check(caller, name, envelope)
        grow(pool, envelope)
