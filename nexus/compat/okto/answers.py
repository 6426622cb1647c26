"""Answers with less than ours, for calls of okto-nexus's clients that ask for less: by `profile`, `include_bodies` or
`include_paths`. A call that says none of them gets our whole answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

from nexus.core.operations.errors import invalid
from nexus.core.operations.registry import Operation
from nexus.core.operations.replies import Data, Outcome, hinted

Row = dict[str, Any]

PROFILES = ("default", "summary", "full")
PREVIEW = 200  # characters of a body
LARGEST = 16_384  # bytes of an event's payload that the default profile answers
ROWS = {"inbox_pull": "messages", "inbox_peek": "messages", "inbox_history": "messages",
        "event_get": "events", "event_wait": "events"}  # fmt: skip
# By operation, what asks for less than we answer; each is checked, and taken out of the arguments.
LESS = {
    **dict.fromkeys(ROWS, ("profile",)),
    "inbox_peek": ("include_bodies", "profile"),
    "workspace_list": ("include_paths",),
}
ALWAYS = {
    "messages": ("message_id", "from_agent_id", "subject", "created_at", "status", "body_preview", "body_bytes"),
    "events": ("event_id", "type", "actor_agent_id", "created_at", "stream"),
}
# In a payload they repeat what the event has.
REPEATED = ("task_id", "handoff_id", "trace_id")
# Whose reader acts on their handoff next, so that a summary names it.
CALLS_TO_ACT = ("handoff.submitted", "handoff.returned", "handoff.unblocked")


def check(name: str, value: Any) -> None:
    """Check a parameter of `LESS`. Raises VALIDATION_ERROR."""
    if name != "profile":
        if not isinstance(value, bool):
            raise invalid(f"{name} must be a boolean.", field=name)
    elif value is not None and _profile(value) not in PROFILES:
        raise invalid(
            f"Unsupported profile {str(value)[:60]!r}. Supported: {', '.join(PROFILES)}.", supported=list(PROFILES)
        )


def less(operation: Operation[Any], given: Mapping[str, Any]) -> Callable[[Outcome], Outcome] | None:
    """Return what makes of our answer the one that a call asks for; None for all of it."""
    said = [name for name in LESS.get(operation.name, ()) if name in given]
    if not said:
        return None
    if operation.name == "workspace_list":
        return None if given["include_paths"] else partial(_of_success, _without_paths)
    previews = given.get("include_bodies", True) is False
    profile = _profile(given["profile"]) if "profile" in given else None
    return partial(_of_success, partial(_page, operation.name, previews, profile))


def _of_success(shape: Callable[[Data], Data], outcome: Outcome) -> Outcome:
    return outcome if outcome.data is None else Outcome(shape(outcome.data))


def _profile(value: Any) -> str:
    return (value.strip().lower() if isinstance(value, str) else value and str(value)) or "default"


def _without_paths(data: Data) -> Data:
    rows = [{name: value for name, value in row.items() if name != "root_realpath"} for row in data["workspaces"]]
    return hinted({**data, "workspaces": rows}, getattr(data, "hint", None))


def _page(operation: str, previews: bool, profile: str | None, data: Data) -> Data:
    kind = ROWS[operation]
    rows = [_previewed(row) if previews else row for row in data[kind]]
    answer = {**data, kind: rows}
    if profile is not None:
        shorter = _shorter_event if kind == "events" else _shorter_message
        answer[kind] = made = [row if profile == "full" else shorter(row, profile == "summary") for row in rows]
        text = json.dumps(made, ensure_ascii=False, separators=(",", ":"))
        omitted = sum(len(row.keys() - fewer.keys()) for row, fewer in zip(rows, made, strict=True))
        cut = profile == "default" and any("follow_up" in row for row in made)
        answer |= {"payload_bytes": len(text.encode()), "omitted_count": omitted, "truncated": cut}
    return hinted(cast(Data, answer), getattr(data, "hint", None))


def _previewed(row: Row) -> Row:
    preview = {"body_preview": row["body"][:PREVIEW], "body_bytes": len(row["body"].encode())}
    return {**{name: value for name, value in row.items() if name != "body"}, **preview}


def _shorter_message(row: Row, summary: bool) -> Row:
    empty = {name for name in ("artifacts", "trace_id") if not row.get(name)}
    if not summary:
        return {name: value for name, value in row.items() if name not in empty}
    kept = {name: row[name] for name in (*ALWAYS["messages"], "artifacts", "trace_id") if name in row.keys() - empty}
    return {**kept, **(_whole_in("inbox_peek") if row.get("body") else {})}


def _shorter_event(row: Row, summary: bool) -> Row:
    kept = {name: row[name] for name in ALWAYS["events"]}
    if row.get("trace_id"):
        kept["trace_id"] = row["trace_id"]
    if row.get("handoff_id") and (not summary or row["type"] in CALLS_TO_ACT):
        kept["handoff_id"] = row["handoff_id"]
    payload = row["payload"]
    if not summary:
        kept["workspace_id"] = row["workspace_id"]
        payload = {name: value for name, value in payload.items() if name not in REPEATED}
        if len(json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()) <= LARGEST:
            return {**kept, "payload": payload} if payload else kept
    return {**kept, **(_whole_in("event_get") if payload else {})}


def _whole_in(operation: str) -> Row:
    return {"follow_up": {"rel": "read_full", "target_ref": operation, "hint": "profile=full"}}
