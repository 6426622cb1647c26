"""The walk over every operation of the registry: who is refused. An operation without a case fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nexus.control.toolset import IN_POOL
from nexus.core.operations import dispatch
from nexus.core.operations.caller import Caller
from nexus.core.operations.registry import Operation, operations
from nexus.core.operations.replies import ENVELOPE
from tests.control.pool import create
from tests.core.test_dispatch import PLAUSIBLE

ANN, NOBODY = Caller("test", agent_id="ann"), Caller("test")
FITTING = {
    **PLAUSIBLE,
    "settings_update": {"values": {"x": "y"}},
    "task_review": {"verdict": "accept"},
    "agent_id": "bob",
    "lasting": "1h",
    "limit": 1,
}
# Operations that every agent may call for itself, or for its team, by toolset. What they find of others is said beside
# them; a test of their own room holds it.
EVERYBODYS = {
    "coordination": {
        *("nexus_info", "workspace_resolve", "workspace_list", "agent_list", "agent_get", "agent_whoami"),
        *("capability_list", "tag_list", "channel_create", "channel_list", "artifact_put", "artifact_get"),
        *("shared_md_render", "message_status", "message_receipts"),
        *("message_get", "message_list", "message_wait"),  # removed: they only say what to call instead
        *("session_heartbeat", "session_close"),  # of its own session: tests/core/test_dispatch.py
    },
    "topics": {
        *("ping", "topic_create", "topic_list", "topic_resolve", "topic_close", "topic_presence", "messages_search"),
        *("topic_join", "cursor_reset", "sync"),  # as the peer that the connection joined as: tests/topics
    },
    "planning": {  # a plan is its project's: whoever works there writes it
        *("plan_start", "plan_status", "plan_update", "plan_decide"),
        *("plan_comments", "task_add", "task_list", "task_get", "task_update", "task_close", "history_search"),
        *("context", "artifact_write", "resume_decide"),
    },
    "files": {"files_who"},
}


def value(name: str, schema: Any, known: Any) -> Any:
    """Something that a parameter of this JSON schema takes."""
    schema = known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    if name in FITTING:
        return FITTING[name]
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return value(name, options[0], known)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    needed = {each: schema["properties"][each] for each in schema.get("required", ()) if "properties" in schema}
    kinds: dict[str, Callable[[], Any]] = {
        "integer": lambda: max(schema.get("minimum", 1), 1),
        "number": lambda: max(schema.get("minimum", 1), 1),
        "boolean": lambda: True,
        "array": lambda: [value("", schema.get("items", {}), known)],
        "object": lambda: {each: value(each, of, known) for each, of in needed.items()},
        "string": lambda: "x" * max(schema.get("minLength", 1), 1),
    }
    return kinds[schema.get("type", "string")]()


def error_of(operation: Operation[Any], caller: Caller, **more: Any) -> dict[str, Any]:
    """The error that a caller gets who gives what the operation requires."""
    schema = operation.params.model_json_schema()
    fields = operation.params.model_fields.items()
    names = [name for name, field in fields if field.is_required() or field.validate_default]
    given = {name: value(name, schema["properties"][name], schema.get("$defs", {})) for name in names}
    given |= FITTING.get(operation.name, {})
    body = ENVELOPE.body(dispatch.perform(operation.toolset, caller, operation.name, {**given, **more}))
    error: dict[str, Any] = body.get("error", {})
    return error


def refusals() -> Iterator[tuple[Operation[Any], Caller, dict[str, Any], tuple[str, dict[str, str]]]]:
    """Each call that must be refused, with the code and the details of the refusal."""
    for operation in operations():
        if operation.operator_only:
            for caller in (ANN, NOBODY):
                yield operation, caller, {}, ("NOT_OWNER", {"rule": "operators"})
        elif operation.acts_as:
            yield operation, ANN, {operation.acts_as: "bob"}, ("NOT_OWNER", {"field": operation.acts_as})
        elif IN_POOL in operation.requires:
            named = {"agent_id", "comment_id"} & operation.params.model_fields.keys()
            for given in ({}, dict.fromkeys(named, "nobody")):  # what there is not: it learns no names
                yield operation, ANN, given, ("NOT_PERMITTED", {"rule": "member"})
        else:
            assert operation.name in EVERYBODYS.get(operation.toolset.name, ()), f"{operation.name} has no case"


def test_every_operation_refuses_who_may_not_call_it(db: None, tmp_path: Path, configure: Callable[..., None]) -> None:
    configure(control=True, home=tmp_path)
    create("bob")  # an agent of the pool, which ann is not
    calls = list(refusals())
    wrong = {}
    for operation, caller, given, expected in calls:
        error = error_of(operation, caller, **given)
        if (error.get("code"), error.get("details")) != expected:
            wrong[operation.name, caller.agent_id] = error
    assert not wrong
    open_to_all = {(toolset, name) for toolset, names in EVERYBODYS.items() for name in names}
    walked = {(operation.toolset.name, operation.name) for operation, *_ in calls}
    assert walked | open_to_all == {(each.toolset.name, each.name) for each in operations()}
    assert not walked & open_to_all
