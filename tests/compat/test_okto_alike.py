"""The published okto-nexus 0.3.1 and ours over the same store, side by side: the same calls, and what differs in the
answers.

NEXUS_DIFFERENCES_TABLE=write writes the table of what differs into docs/how-to/coming-from.md.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from coordination.toolset import COORDINATION, run
from tests.compat import okto
from tests.compat.okto_day import filled
from tests.compat.test_okto_import import played
from tests.compat.test_okto_import import run as run_import
from tests.conftest import LOCAL

pytestmark = [pytest.mark.django_db, pytest.mark.sqlite]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md"
VERSION = "0.3.1"

ID = re.compile(r"\b[a-z]{3,7}_[0-9a-f]{32}\b|\b[0-9a-f]{64}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
# What tells of a run, or of the store, and not of the answer.
OF_THE_RUN = {"event_id", "next_cursor", "cursor", "payload_bytes", "omitted_count", "bytes_written", "session_secret",
              "path"}  # fmt: skip
MEASURED = "metrics."  # values that count also what each does of itself, such as notices


def day(project: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a day; `["$", n, …]` is what the call number n answered."""
    here, calls = {"project_root": project}, []

    def call(tool: str, /, **arguments: Any) -> int:
        calls.append((tool, arguments))
        return len(calls) - 1

    def send(sender: str, target: Any, /, **more: Any) -> int:
        return call("message_create", **here, from_agent_id=sender, subject="News", body="Read me.", target=target,
                    **more)  # fmt: skip

    def offer(target: Any, /, **more: Any) -> int:
        return call("handoff_create", **here, from_agent_id="ann", visibility="public", target=target, **more)

    def step(tool: str, made: int, agent_id: str, /, **more: Any) -> int:
        return call(tool, **here, handoff_id=["$", made, "handoff_id"], agent_id=agent_id, **more)

    to_bob, everybody = {"strategy": "direct", "agent_id": "bob"}, {"strategy": "broadcast"}
    place = call("workspace_resolve", **here, display_name="Here")
    workspace = {"workspace_id": ["$", place, "workspace_id"]}
    for number in (1, 2):
        call("GET /messages", page=number, page_size=200)
    for query in ({"agent": "bob"}, {"from_agent": "ann", "to_agent": "bob"}, {"since": "2999-01-01T00:00:00Z"}):
        call("GET /messages", page_size=500, **query)
    call("GET /events", agent="bob", stream="handoff", workspace=["$", place, "workspace_id"])
    call("workspace_list")
    call("workspace_list", include_paths=True)
    call("agent_register", agent_id="ann", role="lead", capabilities=["plan"], metadata={"a": 1})
    call("agent_list")
    call("agent_get", agent_id="bob")
    call("capability_list")
    opened = call("session_open", agent_id="ann", **workspace)
    call("session_heartbeat", session_id=["$", opened, "session_id"])
    channel = call("channel_create", **here, name="news")
    call("channel_list", **here)
    call("inbox_count", agent_id="bob")
    call("inbox_peek", agent_id="bob", limit=2)
    call("inbox_peek", agent_id="bob", limit=2, include_bodies=True, profile="summary")
    first = send("ann", to_bob)
    send("ann", everybody)
    send("ann", None, channel_id=["$", channel, "channel", "channel_id"])
    send("bob", {"strategy": "role", "role": "lead"}, parent_message_id=["$", first, "message_id"])
    send("ann", {"strategy": "capability", "capability": ["python"]})
    call("message_status", message_id=["$", first, "message_id"])
    pulled = call("inbox_pull", agent_id="bob", limit=2, lease_seconds=60)
    taken = ["$", pulled, "messages", 0, "message_id"]
    call("inbox_extend", agent_id="bob", message_ids=[taken], extend_seconds=90)
    call("inbox_ack", agent_id="bob", message_ids=[taken])
    call("inbox_history", agent_id="bob", limit=100)
    call("inbox_count", agent_id="bob")
    made = offer({"strategy": "capability", "capability": ["python"]}, payload={"title": "Do it"})
    call("handoff_list_available", **here, agent_id="cy")
    claimed = step("handoff_claim", made, "bob")
    step("handoff_get", made, "bob")
    step("handoff_complete", made, "bob", result="Done.", claim_epoch=["$", claimed, "claim_epoch"])
    step("handoff_get", made, "ann")
    other = offer(to_bob, payload="Plain text.", acceptance_criteria=["It runs."])
    after = {"depends_on": [["$", other, "handoff_id"]], "visibility": "eligible"}
    call("handoff_create", **workspace, **after, from_agent_id="ann", target=to_bob, payload="Then this.")
    step("handoff_claim", other, "bob")
    step("handoff_complete", other, "bob", result={"a": 1})
    step("handoff_get", other, "ann")
    refused = offer(to_bob)
    step("handoff_claim", refused, "bob")
    step("handoff_reject", refused, "bob", reason="No time.")
    withdrawn = offer(everybody)
    step("handoff_cancel", withdrawn, "ann")
    put = call("artifact_put", **here, artifact_type="markdown", name="a.md", content="# A", metadata={"b": 2})
    call("artifact_get", **here, artifact_id=["$", put, "artifact_id"])
    call("event_cursor", **here, agent_id="ann", stream="workspace")
    for profile in ("default", "summary", "full"):
        call("event_get", **here, agent_id="ann", stream="handoff", limit=3, profile=profile)
    call("event_wait", **here, agent_id="ann", stream="workspace", filters={"type": "message.created"}, limit=2)
    call("shared_md_render", **workspace)
    call("coordination_health", **here, window="7d")
    # Mistakes
    call("workspace_resolve", project_root="nowhere")
    call("session_open", agent_id="ann", workspace_id="0" * 64)
    call("session_heartbeat", session_id="nobody")
    call("message_create", **here, from_agent_id="ann", subject=" ", body="b", target=to_bob)
    call("message_create", from_agent_id="ann", subject="s", body="b", target=to_bob)
    send("ann", {"strategy": "odd"})
    send("ann", {"strategy": "direct", "agent_id": "nobody"})
    call("message_status", message_id="msg_none")
    call("message_list")
    call("inbox_pull", agent_id="bob", limit=0)
    call("inbox_pull", agent_id="bob", profile="odd")
    call("inbox_ack", agent_id="bob", message_ids=["msg_none"])
    call("inbox_extend", agent_id="bob", message_ids=["msg_none"], extend_seconds=60)
    offer({"strategy": "direct", "agent_id": "nobody"})
    call("handoff_create", **here, from_agent_id="ann", visibility="odd", target=everybody)
    step("handoff_claim", made, "cy")
    step("handoff_complete", refused, "bob", result="Late.")
    step("handoff_claim", withdrawn, "nobody")
    call("handoff_get", **here, handoff_id="hof_none", agent_id="ann")
    call("artifact_put", **here, artifact_type="odd", content="x")
    call("artifact_get", **here, artifact_id="art_none")
    call("event_get", **here, agent_id="ann", stream="odd")
    call("event_get", agent_id="ann", stream="workspace", project_root="/nowhere")
    call("coordination_health", **here, window="2h")
    call("session_close", session_id=["$", opened, "session_id"])
    call("session_close", session_id=["$", opened, "session_id"])
    return calls


def told(envelope: dict[str, Any]) -> dict[str, list[str]]:
    """Return what an answer holds: its values by the path of their field, without ids, times and numbers of events."""
    if not envelope["ok"]:
        return {"refused with": [f"`{envelope['error']['code']}`"]}
    found: defaultdict[str, list[str]] = defaultdict(list)

    def look(value: Any, path: str) -> None:
        name = path.rpartition(".")[2]
        if isinstance(value, dict) and value:
            for field, each in value.items():
                look(each, f"{path}.{field}" if path else field)
        elif isinstance(value, list) and value:
            for each in value:
                look(each, f"{path}[]")
        elif value is not None and (
            name in OF_THE_RUN or (path.startswith(MEASURED) and isinstance(value, int | float))
        ):
            found[path].append("a value")
        else:
            found[path].append(f"`{TIME.sub('a time', ID.sub('an id', str(value)))}`")

    look(envelope["data"], "")
    return {path: sorted(values) for path, values in found.items()}


def differences(theirs: dict[str, Any], ours: dict[str, Any]) -> tuple[set[str], set[str]]:
    """Return the fields that only their answer has, and what differs in the others. What we add misleads no client."""
    there, here = told(theirs), told(ours)
    if theirs["ok"] != ours["ok"]:
        of = ["answered" if envelope["ok"] else told(envelope)["refused with"][0] for envelope in (theirs, ours)]
        return set(), {f"{of[0]} → {of[1]}"}
    other = [path for path in there.keys() & here.keys() if there[path] != here[path]]
    alone = {f"`{path}`" for path in there.keys() - here.keys()}
    return alone, {_values(path, there[path], here[path]) for path in other}


def _values(path: str, there: list[str], here: list[str]) -> str:
    one, two = sorted(set(there) - set(here)) or there[:1], sorted(set(here) - set(there)) or here[:1]
    if len(there) != len(here):
        one, two = [f"{len(there)} times"], [f"{len(here)} times"]
    return f"`{path}`: {one[0]} → {two[0]}"


local = Client(headers={"host": "localhost"})


def table(theirs: dict[str, Any], calls: list[tuple[str, dict[str, Any]]], ours: list[dict[str, Any]]) -> str:
    found: defaultdict[str, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for (tool, _), there, here in zip(calls, theirs["answers"], ours, strict=True):
        for all_of, new in zip(found[tool], differences(there, here), strict=True):
            all_of |= new
    lines = ["| call | only okto-nexus 0.3.1 answers | other values, there → here |", "|---|---|---|"]
    for tool in sorted(found):
        cells = [", ".join(sorted(each)) for each in found[tool]]
        if any(cells):
            lines.append(f"| {' | '.join([f'`{tool}`', *cells])} |")
    operations = COORDINATION.operations
    missing = ", ".join(f"`{tool}`" for tool in sorted(theirs["tools"]) if tool not in operations)
    return "\n".join([*lines, "", f"Tools that are not here: {missing}."])


@pytest.mark.usefixtures("starts_processes")
def test_the_table_in_the_docs_is_what_differs(tmp_path: Path) -> None:
    day_before = played(VERSION, tmp_path, 3)
    run_import(day_before.home)
    calls = day(day_before.project)
    theirs = okto.repeat(VERSION, Path(shutil.copytree(day_before.home, tmp_path / "again")), calls)
    ours: list[dict[str, Any]] = []
    for tool, arguments in calls:
        given = filled(arguments, ours)
        if tool.startswith("GET "):
            answer = local.get(f"/api/v1{tool.removeprefix('GET ')}", given).json()
            del answer["data"]["results"]  # which items repeats
            ours.append(answer)
        else:
            ours.append(dict(run(LOCAL, tool, given)))
    found = table(theirs, calls, ours)
    before, begin, rest = PAGE.read_text().partition("<!-- differences: okto-nexus -->\n\n")
    _, end, after = rest.partition("\n\n<!-- end -->")
    if os.environ.get("NEXUS_DIFFERENCES_TABLE") == "write":
        PAGE.write_text(f"{before}{begin}{found}{end}{after}")
    assert found in PAGE.read_text(), "run this test with NEXUS_DIFFERENCES_TABLE=write"
