"""The points of a session that apps listen to: what each client calls them, tells there, and takes for an answer."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nexus.core import harness_events
from nexus.core.coding_clients import HARNESSES, HOOKED, TOOLS
from nexus.core.harness_events import HarnessEvent, HookAnswer, HookEvent
from nexus.hooks import client_entries, client_files, entry, quick_check, tool_files
from nexus.hooks import harness as dialects
from nexus.hooks.config_text import JsonText
from tests.hooks.harness import Harness


def read(*arguments: str, **payload: Any) -> dialects.HookCall:
    return dialects.parse_call(arguments, {}, json.dumps({"cwd": "/", **payload}))


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[HookEvent]]:
    """What a handler of the test's own is told; it says the texts of `answers`."""
    told: list[HookEvent] = []

    def handle(what: HookEvent) -> HookAnswer:
        told.append(what)
        return (
            HookAnswer(context="C", refusal="R") if what.event is HarnessEvent.PRE_TOOL_USE else HookAnswer(context="C")
        )

    monkeypatch.setattr(entry, "HANDLERS", [handle])
    monkeypatch.setattr(entry, "_mail", lambda *_: "")
    yield told


def say(*arguments: str, home: Path | None = None, **payload: Any) -> Any:
    answer = entry.respond(SimpleNamespace(home=home), read(*arguments, **payload), lambda: None)
    return json.loads(answer) if answer else None


# What each client calls them


def test_it_knows_the_points_of_each_client() -> None:
    listed = {
        client: [event.value for event in HarnessEvent if event not in names.values()]
        for client, names in ((client, hooks.points) for client, hooks in HARNESSES.items())
    }
    assert listed == {
        "claude-code": ["context_compact"],  # which it tells by starting the session anew
        "codex": [],
        "gemini": ["subagent_spawn", "subagent_complete"],
        "qwen": [],
        "cursor": [],
        "opencode": ["subagent_spawn", "subagent_complete", "session_end", "context_compact"],
        "text": ["session_end", "context_compact"],
    }


def test_it_takes_a_session_that_starts_after_a_compaction_for_one_that_was_compacted() -> None:
    assert read(hook_event_name="SessionStart", source="compact").point is HarnessEvent.CONTEXT_COMPACT
    assert read(hook_event_name="SessionStart", source="startup").point is HarnessEvent.SESSION_START
    assert read("--client", "text", hook_event_name="Nothing").point is None


def test_it_tells_what_a_client_says_of_a_subagent(heard: list[HookEvent]) -> None:
    say(hook_event_name="SubagentStop", agent_id="a1", agent_type="engineer", last_assistant_message="Done.")
    say("--client", "cursor", hook_event_name="subagentStop", subagent_type="engineer", summary="Done.", task="Mend it")
    claude, cursor = heard
    assert (claude.event, claude.agent_id) == (HarnessEvent.SUBAGENT_COMPLETE, "a1")
    assert (claude.agent_type, claude.message) == ("engineer", "Done.")
    assert (cursor.agent_type, cursor.message, cursor.assignment) == ("engineer", "Done.", "Mend it")


PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n*** Add File: b.py\n*** End Patch"
MOVES = (
    "*** Begin Patch\n*** Update File: a.py\n*** Move to: src/b.py\n@@\n-x\n+y\n*** Delete File: c.py\n*** End Patch"
)
DIFF = "diff --git a/a.py b/src/b.py\n--- a/a.py\t2026-11-28\n+++ b/src/b.py\n@@ -1 +1 @@\n-x\n+y\n"
NEW = "--- /dev/null\n+++ b/src/new one.py\n@@ -0,0 +1 @@\n+x\n"
MY = ("src/my y/a.py", "src/my y/b.py")
EDITS: list[tuple[Any, tuple[str, ...]]] = [
    ({"file_path": "/p/a.py", "content": ""}, ("/p/a.py",)),
    ({"file_path": "./a/../b.py\n", "path": "b.py", "edits": []}, ("b.py",)),
    ({"notebook_path": "n.ipynb", "new_source": ""}, ("n.ipynb",)),
    ({"filePath": "a.py", "newString": ""}, ("a.py",)),
    ({"edits": [{"file_path": "a.py"}, {"path": "b.py"}]}, ("a.py", "b.py")),
    ({"files": ["a.py", {"path": "b.py"}], "content": ""}, ("a.py", "b.py")),
    ({"relative_path": "a.py", "content": ""}, ("a.py",)),
    ({"file_path": "file:///p/a%20b.py", "content": ""}, ("/p/a b.py",)),
    ({"path": "file://localhost/p/a.py", "content": ""}, ("/p/a.py",)),
    ({"file_path": "~/a.py", "content": ""}, ("/home/ann/a.py",)),
    ('{"file_path": "a.py", "content": ""}', ("a.py",)),
    *(
        (asked, ("a.py", "b.py"))
        for text in (PATCH, f"\n\n  {PATCH}\n", PATCH.replace("\n", "\r\n"), PATCH.replace("\n", "\n  "))
        for asked in (text, [text], {"command": text}, {"input": text}, {"patchText": text}, {"patch": text})
    ),
    ({"command": ["apply_patch", PATCH]}, ("a.py", "b.py")),
    ({"command": f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"}, ("a.py", "b.py")),
    ({"command": f'apply_patch "{PATCH}"'}, ("a.py", "b.py")),
    ({"cmd": f"cat x && applypatch <<-E\n{PATCH}\nE"}, ("a.py", "b.py")),
    ({"command": ["bash", "-lc", f"cd 'my src' && apply_patch <<EOF\n{PATCH}\nEOF"]}, ("my src/a.py", "my src/b.py")),
    ({"command": ["apply_patch", PATCH], "workdir": "src"}, ("src/a.py", "src/b.py")),
    ({"input": MOVES}, ("a.py", "src/b.py", "c.py")),
    ({"diff": DIFF}, ("a.py", "src/b.py")),
    ({"patch": DIFF.replace("\n", "\r\n")}, ("a.py", "src/b.py")),
    ({"path": "a.py", "diff": "@@ -1 +1 @@\n-x\n+y\n"}, ("a.py",)),
    ({"command": f"git -C . apply -p1 <<'EOF'\n{DIFF}EOF"}, ("a.py", "src/b.py")),
    ({"command": f"patch -p1 <<'EOF'\n{NEW}EOF"}, ("src/new one.py",)),
    ({"command": f"(cd x && ls); set -e; cd src || exit 1\ncd 'my y' && apply_patch <<E\n{PATCH}\nE"}, MY),
    ({"command": f"(cd src/my\\ y; pushd 'src/my y' && applypatch <<E\n{PATCH}\nE\n)"}, MY),
    ({"command": "patch -d src -p2 <<E\n--- old/x/a.py\n+++ new/x/a.py\n@@ -1 +1 @@\nE"}, ("src/a.py",)),
    ({"command": "git apply --directory=src <<E\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\nE"}, ("src/a.py",)),
    ({"command": "git am <<E\nSubject: x\n\ndiff --git a/a.png b/a.png\nGIT binary patch\nE"}, ("a.png",)),
    ({"diff": 'diff --git "a/\\303\\274 \\".py" "b/\\303\\274 \\".py"\nold mode 100644\n'}, ('ü ".py',)),
    ({"TargetFile": "a.py", "CodeContent": "", "EditS": []}, ("a.py",)),
    ({"changes": {"a.py": {"update": {"move_path": None}}, "b.py": {"add": {}}}}, ("a.py", "b.py")),
    (
        {"patch": "diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n"},
        ("a.py", "b.py"),
    ),
]


@pytest.mark.parametrize(
    ("tool", "asked"),
    [
        ("delete_file", {"target_file": "a.py"}),
        ("mcp__serena__replace_symbol_body", {"relative_path": "a.py", "body": ""}),
        ("insert_edit_into_file", {"filePath": "a.py", "code": ""}),
        ("multi_replace_string_in_file", {"replacements": [{"filePath": "a.py"}]}),
        ("create_new_file", {"pathInProject": "a.py", "text": ""}),
        ("replace_file_content", {"TargetFile": "a.py", "ReplacementChunks": []}),
        ("apply_diff", {"args": {"file": [{"path": "a.py", "diff": {"content": ""}}]}}),
        ("renameFile", {"oldPath": "a.py"}),
        ("str_replace_editor", {"command": "undo_edit", "path": "a.py"}),
    ],
)
def test_it_knows_an_edit_by_the_name_of_the_tool(heard: list[HookEvent], tool: str, asked: Any) -> None:
    say(hook_event_name="PreToolUse", tool_name=tool, tool_input=asked)
    assert (heard[-1].files, heard[-1].edits) == (("/a.py",), True)


@pytest.mark.parametrize("tool", ["str_replace_editor", "view_file", "getEditorState", "overview"])
def test_a_tool_that_looks_at_a_file_is_no_edit(heard: list[HookEvent], tool: str) -> None:
    say(hook_event_name="PreToolUse", tool_name=tool, tool_input={"command": "view", "path": "a.py"})
    assert (heard[-1].files, heard[-1].edits) == (("/a.py",), False)


@pytest.mark.parametrize(("asked", "files"), EDITS)
def test_it_finds_the_files_that_any_tool_edits(
    heard: list[HookEvent], monkeypatch: pytest.MonkeyPatch, asked: Any, files: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    say(hook_event_name="PreToolUse", tool_name="a tool of any name", tool_input=asked)
    assert (heard[-1].files, heard[-1].edits) == (tuple(f"/{file}".replace("//", "/") for file in files), True)


def test_it_reads_paths_from_the_working_directory(heard: list[HookEvent], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real" / "src")
    for asked in ({"file_path": "../a.py"}, {"command": PATCH.replace("a.py", "../a.py")}):
        say(hook_event_name="PreToolUse", tool_name="Edit", cwd=str(tmp_path / "link"), tool_input=asked)
        assert str(tmp_path / "real" / "a.py") in heard[-1].files


@pytest.mark.parametrize(
    ("asked", "files"),
    [
        ({"file_path": "/a.py"}, ("/a.py",)),
        ({"command": "echo '*** Add File: x'"}, ()),
        ({"command": f"git log -p | cat; echo '\n{DIFF}'"}, ()),
        ({"command": "git diff -- a.py"}, ()),
        ({"content": PATCH}, ()),
        ({"file_path": 5, "path": None, "edits": [1, {"path": 2}], "command": [3]}, ()),
        ([1], ()),
        (None, ()),
    ],
)
def test_it_takes_nothing_else_for_an_edit(heard: list[HookEvent], asked: Any, files: tuple[str, ...]) -> None:
    say(hook_event_name="PreToolUse", tool_name="Read", tool_input=asked)
    assert (heard[-1].files, heard[-1].edits) == (files, False)


def test_it_tells_whether_a_tool_failed(heard: list[HookEvent]) -> None:
    say(hook_event_name="PostToolUse", tool_response={"is_error": True})
    say(hook_event_name="PostToolUseFailure", error="no")
    say("--client", "gemini", hook_event_name="AfterTool", tool_response={"error": {"message": "no"}})
    say(hook_event_name="PostToolUse", tool_response={"filePath": "a"})
    say("--client", "cursor", hook_event_name="subagentStop", status="aborted")
    assert [what.failed for what in heard] == [True, True, True, False, True]


NAMES = ["hook_event_name", "prompt", "tool_name", "tool_input", "source", "agent_id", "task", "x"]
VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(list(HOOKED["cursor"].points))
INPUTS = st.dictionaries(st.sampled_from([*tool_files.PATHS, *tool_files.LISTS, *tool_files.PATCHES]), VALUES)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES | INPUTS | st.lists(VALUES)))
def test_it_makes_something_of_every_payload(payload: dict[str, Any]) -> None:
    call = dialects.parse_call([], {}, json.dumps(payload))
    told = dialects.fields(call.client, call.payload)
    assert all(isinstance(told.get(name, ""), str) for name in ("prompt", "agent_type", "agent_id", "tool", "message"))


# What each takes for an answer


def specific(name: str, **fields: str) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": name, **fields}}


@pytest.mark.parametrize(
    ("client", "name", "answer"),
    [
        ("claude-code", "SubagentStart", specific("SubagentStart", additionalContext="C")),
        ("claude-code", "PostToolUse", specific("PostToolUse", additionalContext="C")),
        ("claude-code", "PostToolUseFailure", specific("PostToolUseFailure", additionalContext="C")),
        ("codex", "PreToolUse", specific("PreToolUse", permissionDecision="deny", permissionDecisionReason="R")),
        ("gemini", "BeforeTool", {"decision": "deny", "reason": "R"}),
        ("gemini", "AfterTool", specific("AfterTool", additionalContext="C")),
        ("gemini", "BeforeAgent", specific("BeforeAgent", additionalContext="C")),
        ("cursor", "sessionStart", {"additional_context": "C"}),
        ("cursor", "preToolUse", {"permission": "deny", "user_message": "R", "agent_message": "R"}),
        ("cursor", "beforeSubmitPrompt", {"additional_context": "C", "continue": True}),
    ],
)
def test_it_answers_each_client_in_its_own_words(heard: list[HookEvent], client: str, name: str, answer: Any) -> None:
    assert say("--client", client, hook_event_name=name) == answer


@pytest.mark.parametrize(
    ("client", "name", "answer"),
    [
        ("codex", "Stop", {"decision": "block", "reason": "M"}),
        ("gemini", "AfterAgent", {"decision": "block", "reason": "M"}),
        ("cursor", "stop", {"followup_message": "M"}),
    ],
)
def test_it_tells_of_mail_at_the_end_of_a_turn_in_each_clients_words(client: str, name: str, answer: Any) -> None:
    assert json.loads(dialects.render(read("--client", client, hook_event_name=name), "M")) == answer


def test_it_warns_the_user_where_no_agent_listens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(entry, "HANDLERS", [lambda what: HookAnswer(warning="W")])
    assert say(home=tmp_path, hook_event_name="SessionEnd") == {"systemMessage": "W"}
    assert say("--client", "cursor", home=tmp_path, hook_event_name="sessionEnd") == {"user_message": "W"}


def test_it_knows_where_an_agent_listens(heard: list[HookEvent], tmp_path: Path) -> None:
    for client, hears, names in (
        ("claude-code", True, "SessionStart SubagentStart"),
        ("claude-code", False, "SubagentStop SessionEnd"),
        ("codex", False, "PostCompact SessionEnd"),
        ("gemini", False, "PreCompress"),
        ("cursor", False, "preCompact subagentStart"),
    ):
        for name in names.split():
            say("--client", client, home=tmp_path, hook_event_name=name)
            assert heard[-1].heard == hears, (client, name)


def test_it_tells_of_mail_although_a_listener_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(what: HookEvent) -> HookAnswer:
        raise ValueError("no\nroom")

    monkeypatch.setattr(entry, "HANDLERS", [fail, lambda what: HookAnswer(context="C")])
    monkeypatch.setattr(entry, "_mail", lambda *_: "M")
    answer = say(home=tmp_path, hook_event_name="UserPromptSubmit")
    assert answer["hookSpecificOutput"]["additionalContext"] == "C\nM"
    assert capsys.readouterr().err == "[nexus] hook: no room\n"


# How a client comes to call it


@pytest.mark.parametrize("client", HOOKED)
def test_it_is_installed_for_every_point_when_planning_is_wanted_and_for_mail_and_edits_otherwise(client: str) -> None:
    mail = client_entries.hook_command(["nexus"], client)
    planning = client_entries.hook_command(["nexus"], client, [dialects.PLANNING])
    document = JsonText('{"other": 1}')
    client_files.put_hooks(client, planning)(document)
    hooks = HOOKED[client]
    activities = {name for name in hooks.activities if name not in hooks.since}
    assert set(document.get(("hooks",))) == {*hooks.names, *hooks.points, *activities}
    client_files.put_hooks(client, mail)(document)
    (before,) = set(document.get(("hooks",))) - {*hooks.names, *activities}
    assert hooks.points[before] is HarnessEvent.PRE_TOOL_USE
    matcher = "|".join((*TOOLS[client].editing, TOOLS[client].shell))
    assert document.get(("hooks", before, 0, "matcher")) == matcher
    client_files.put_hooks(client, planning)(document)
    client_files.drop_hooks(client)(document)
    assert document.get(("hooks",)) is None


@pytest.mark.parametrize(
    ("says", "expected"),
    [("2.1.332 (Claude Code)", True), ("2.1.78 (Claude Code)", True), ("2.1.67 (Claude Code)", False), ("none", False)],
)
@pytest.mark.usefixtures("starts_processes")
def test_a_point_that_would_spoil_an_older_clients_file_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, expected: bool
) -> None:
    program = tmp_path / "claude"
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    client_entries.version.cache_clear()
    document = JsonText("{}")
    client_files.put_hooks("claude-code", client_entries.hook_command(["nexus"], "claude-code"))(document)
    client_entries.version.cache_clear()
    assert ("StopFailure" in document.get(("hooks",))) is expected
    client_files.drop_hooks("claude-code")(document)
    assert document.get(("hooks",)) is None


def test_it_asks_a_client_for_no_more_time_than_that_gives() -> None:
    entries = client_entries.hook_entries("codex", client_entries.hook_command(["nexus"], "codex"))
    asked = {name: entry["hooks"][0]["timeout"] for name, entry in entries.items()}
    assert (asked["SessionEnd"], asked["Interrupt"], asked["Stop"]) == (3, 3, client_entries.HOOK_TIMEOUT)


def test_it_registers_what_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    from nexus.planning.hook import handle

    assert handle in harness_events.HANDLERS


# Whole processes


@pytest.mark.usefixtures("starts_processes")
def test_it_stays_out_of_projects_that_keep_no_plan(harness: Harness) -> None:
    for name in ("SessionStart", "UserPromptSubmit", "PostToolUse", "SessionEnd"):
        done = harness.hook(text=json.dumps({"hook_event_name": name, "prompt": "[m] Keep this"}))
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(harness.project.iterdir()) == []


@pytest.mark.usefixtures("starts_processes")
def test_it_says_one_line_on_a_link_in_place_of_the_directory_and_touches_nothing(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "state").mkdir(parents=True)
    (harness.project / ".nexus").symlink_to(tmp_path / "elsewhere")
    done = harness.hook("--planning", text='{"hook_event_name": "SessionStart"}')
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 1)
    assert "it is a link" in done.stderr
    assert [*(tmp_path / "elsewhere" / "state").iterdir()] == []


@pytest.mark.usefixtures("starts_processes")
def test_it_gates_edits_when_told_to(harness: Harness) -> None:
    edit = json.dumps({"hook_event_name": "PreToolUse", "tool_name": "Edit", "tool_input": {"file_path": "a.py"}})
    assert harness.hook("--planning", text=edit).stdout == ""
    told = json.loads(harness.hook("--planning", text=edit, NEXUS_PLANNING_GATE_EDITS="true").stdout)
    assert told["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_it_waits_for_a_store_that_another_process_is_making(tmp_path: Path) -> None:
    database = tmp_path / "nexus.db"
    with closing(sqlite3.connect(database)) as store:
        store.executescript("CREATE TABLE agents (a); CREATE TABLE message_deliveries (a); CREATE TABLE handoffs (a)")
    seen = quick_check.glance(database, agent_id="ann", root=str(tmp_path), busy_ms=1000)
    assert seen == quick_check.PendingWork(set(), float("inf"))
