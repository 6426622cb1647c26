"""What the runner reports: of fixtures that disagree, of files that are no fixtures, and of state files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.__main__ import main
from tests.conformance.loading import Fixture, load
from tests.conformance.runner import Call, play
from tests.conformance.validation import is_project_file, problem

TASKS = ".nexus/state/tasks.json"
TIME = "2026-03-02T08:00:00.000Z"
DATA = {
    "task": {"id": 2, "title": "Hang lamps", "done": False, "deps": [1, 7], "created_at": TIME, "owner": None},
    "length": 5,
}


def answering(data: Mapping[str, Any] = DATA) -> Call:
    """Tools that always succeed with the same data."""
    return lambda tool, arguments: {"ok": True, "data": dict(data)}


def refusing(message: str) -> Call:
    """Tools that always refuse."""
    return lambda tool, arguments: {"ok": False, "error": {"code": "NOT_FOUND", "message": message}}


def writing(text: str, file: str = TASKS) -> Call:
    """Tools that write a file into the project."""

    def call(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        path = Path(arguments["project_root"], file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return {"ok": True, "data": {}}

    return call


def body(**more: Any) -> dict[str, Any]:
    action = {"tool": "task_add", "params": {}}
    return {"test_id": "one", "description": "One behaviour of a tool", "action": action, **more}


def fixture(**postcondition: Any) -> Fixture:
    return Fixture("tools/one.json", "one", body(postcondition=postcondition))


def found_in(directory: Path, content: Any, name: str = "tools/one.json") -> list[Fixture]:
    """What is loaded of a directory with one file."""
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return list(load(directory))


AGREEING = {
    "$.task.id": 2.0,
    "$['task']['done']": False,
    "$.task.deps[-1]": 7,
    "$.task.deps.length": {"type": "number", "min": 1, "max": 2},
    "$.length": 5,
    "$.task.owner": None,
    "$.task.nowhere": None,
    "$.task.deps[9]": None,
    "$.task.title.length": None,
    "$.task.created_at": {"type": "iso8601"},
    "$.task.done": {"type": "boolean"},
    "$.task.title": {"type": "string", "minLength": 10, "pattern": "lamps$"},
}
OTHERWISE: list[tuple[str, Any, str]] = [  # path, expected, found
    ("$.task.id", 1, "2"),
    ("$.task.id", True, "2"),
    ("$.task.id", "2", "2"),
    ("$.task.done", 0, "false"),
    ("$.task.title", None, '"Hang lamps"'),
    ("$.task.nowhere", "", "nothing"),
    ("$.task.deps.length", 3, "2"),
    ("$.task.title", {"type": "iso8601"}, '"Hang lamps"'),
    ("$.task.done", {"type": "number"}, "false"),
    ("$.task.id", {"type": "boolean"}, "2"),
    ("$.task.id", {"type": "number", "min": 3}, "2"),
    ("$.task.id", {"type": "number", "max": 1}, "2"),
    ("$.task.id", {"type": "string"}, "2"),
    ("$.task.title", {"type": "string", "minLength": 11}, '"Hang lamps"'),
    ("$.task.title", {"type": "string", "pattern": "^lamps"}, '"Hang lamps"'),
]


def test_it_finds_what_assertions_expect(tmp_path: Path) -> None:
    assert play(fixture(return_value=AGREEING), answering(), tmp_path) == []


@pytest.mark.parametrize(("path", "expected", "found"), OTHERWISE)
def test_it_tells_path_expected_and_found(path: str, expected: Any, found: str, tmp_path: Path) -> None:
    told = f"{path}: expected {json.dumps(expected)}, found {found}"
    assert play(fixture(return_value={path: expected}), answering(), tmp_path) == [told]


@pytest.mark.parametrize(
    ("postcondition", "told"),
    [
        ({"error": True}, []),
        ({"error_contains": "id 9 not"}, []),
        ({"return_value": {"$.error": "Task id 9 not found"}}, []),
        ({"error_contains": "no such"}, ["error: expected 'no such' in it, found 'Task id 9 not found'"]),
        ({"return_value": {"$.error": "none"}}, ['$.error: expected "none", found "Task id 9 not found"']),
        ({}, ["error: expected none, found NOT_FOUND: Task id 9 not found"]),
        ({"error": False}, ["error: expected none, found NOT_FOUND: Task id 9 not found"]),
    ],
)
def test_it_compares_a_refusal(postcondition: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    assert play(fixture(**postcondition), refusing("Task id 9 not found"), tmp_path) == told


@pytest.mark.parametrize(
    ("postcondition", "told"),
    [
        ({"error": True}, ["error: expected one, found none"]),
        ({"error_contains": "gone"}, ["error: expected 'gone', found none"]),
        (
            {"return_value": {"$.error": "gone"}},
            ["error: expected one, found none", '$.error: expected "gone", found nothing'],
        ),
    ],
)
def test_it_tells_that_a_call_should_have_failed(
    postcondition: dict[str, Any], told: list[str], tmp_path: Path
) -> None:
    assert play(fixture(**postcondition), answering({}), tmp_path) == told


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"notes.md": {}, "plan.md": None}, []),
        ({"notes.md": None}, ["notes.md: expected no file, found one"]),
        ({"plan.md": {}}, ["plan.md: expected a file, found none"]),
        ({"notes.md": {"$.a": 1}}, ["notes.md: expected JSON, found none: "]),
    ],
)
def test_it_looks_for_files(files: dict[str, Any], told: list[str], tmp_path: Path) -> None:
    problems = play(fixture(state_files=files), writing("# Notes", "notes.md"), tmp_path)
    assert [line[: len(start)] for line, start in zip(problems, told, strict=True)] == told


def test_it_names_the_file_that_an_assertion_is_about(tmp_path: Path) -> None:
    asserted = fixture(state_files={"a.json": {"$.rooms": 4}})
    assert play(asserted, writing('{"rooms": 5}', "a.json"), tmp_path) == ["a.json $.rooms: expected 4, found 5"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"goal": "", "decisions": [], "tasks": []}', []),
        (
            '{"goal": "", "decisions": [], "tasks": [], "owner": "x"}',
            [f"{TASKS} breaks its schema at $: Additional properties are not allowed ('owner' was unexpected)"],
        ),
        (
            '{"goal": null, "decisions": [], "tasks": []}',
            [f"{TASKS} breaks its schema at $.goal: None is not of type 'string'"],
        ),
        ("{", [f"{TASKS} breaks its schema is no JSON: "]),
    ],
)
def test_it_validates_every_state_file_after_a_step(text: str, told: list[str], tmp_path: Path) -> None:
    problems = play(fixture(), writing(text), tmp_path)
    assert [line[: len(start)] for line, start in zip(problems, told, strict=True)] == told


def test_it_does_not_judge_a_state_file_that_a_fixture_wrote_and_nobody_changed(tmp_path: Path) -> None:
    malformed = body(precondition={"state_files": {TASKS: {"goal": 5}}})
    assert play(Fixture("tools/one.json", "one", malformed), answering(), tmp_path) == []
    assert json.loads((tmp_path / TASKS).read_text()) == {"goal": 5}


def test_it_calls_with_the_project_and_stops_at_the_first_step_that_disagrees(tmp_path: Path) -> None:
    calls: list[tuple[str, Mapping[str, Any]]] = []

    def call(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        calls.append((tool, arguments))
        return {"ok": True, "data": {"n": len(calls)}}

    steps = [
        {"action": {"tool": "task_add", "params": {"title": "a"}}, "assert_return": {"$.n": 1}},
        {"action": {"tool": "task_list", "params": {}}, "assert_return": {"$.n": 1}},
        {"action": {"tool": "task_close", "params": {}}},
    ]
    scenario = {"test_id": "three", "description": "Three steps of a scenario", "steps": steps}
    assert play(Fixture("s.json", "three", scenario), call, tmp_path) == ["step 2: $.n: expected 1, found 2"]
    where = {"project_root": str(tmp_path)}
    assert calls == [("task_add", {"title": "a", **where}), ("task_list", where)]


def test_it_asserts_a_postcondition_after_the_last_step(tmp_path: Path) -> None:
    steps = [{"action": {"tool": "task_list", "params": {}}}] * 2
    scenario = {"test_id": "two", "description": "Two steps of a scenario", "steps": steps}
    after = {"return_value": {"$.length": 4}, "state_files": {TASKS: {}}}
    problems = play(Fixture("s.json", "two", scenario | {"postcondition": after}), answering(), tmp_path)
    assert problems == ["step 2: $.length: expected 4, found 5", f"step 2: {TASKS}: expected a file, found none"]


@pytest.mark.parametrize("file", ["a/../../x", "/etc/x", "", "C:\\x", "a\x00b", "{STATE_ROOT}/x.json"])
@pytest.mark.parametrize("where", ["precondition", "postcondition"])
def test_it_refuses_files_outside_the_project(file: str, where: str, tmp_path: Path) -> None:
    (hostile,) = found_in(tmp_path / "suite", body(**{where: {"state_files": {file: {}}}}))
    project = tmp_path / "project"
    project.mkdir()
    assert "is not a 'project-file'" in hostile.fault
    assert play(hostile, answering(), project) == [hostile.fault]
    assert not list(project.iterdir()) and not (tmp_path / "x").exists()


@given(st.text("./\\a~", max_size=8))
def test_it_lets_no_path_lead_out_of_the_project(text: str) -> None:
    if is_project_file(text):
        assert Path("/project", text).resolve().is_relative_to("/project")
        assert Path("/project", text).resolve() != Path("/project")


def expecting(path: str, value: Any) -> dict[str, Any]:
    return {"postcondition": {"return_value": {path: value}}}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (expecting("$.a", {"type": "datetime"}), "'datetime' is not one of"),
        (expecting("$.a", {"type": "number", "minimum": 1}), "'minimum' was unexpected"),
        (expecting("$.a", {"type": "string", "min": 1}), "'number' was expected"),
        (expecting("$.a", {"type": "string", "pattern": "("}), "is not a 'regex'"),
        (expecting("$.a", {}), "'type' is a required property"),
        (expecting("$.a", [1]), "is not of type"),
        (expecting("$.a[*]", 1), "is not a 'value-path'"),
        ({"postcondition": {"exit_code": 0}}, "'exit_code' was unexpected"),
        ({"action": {"tool": "", "params": {}}}, "at $.action.tool"),
        ({"steps": [{"action": {"tool": "task_add", "params": {}}}]}, "is valid under each of"),
        ({"test_id": "Not an id"}, "does not match"),
    ],
)
def test_it_says_why_a_file_is_no_fixture(more: dict[str, Any], told: str, tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, body(**more))
    assert told in found.fault, found.fault


@pytest.mark.parametrize("text", [b"", b"{", b"nonsense", b'{"a": NaN}', b"\xed\xa0\x80", b'"\\ud800"', b"[" * 100_000])
@pytest.mark.parametrize("name", ["tools/a.json", "elsewhere/a.json"])
def test_it_tells_of_nonsense(text: bytes, name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    path.write_bytes(text)
    (found,) = load(tmp_path)
    assert found.file == name and found.fault.startswith("is no JSON that can be read: ")


def test_it_loads_single_fixtures_and_lists_and_passes_over_schemas(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# Fixtures")
    found_in(tmp_path, {"$schema": "https://json-schema.org/draft/2020-12/schema"}, "schema/fixture.schema.json")
    found_in(tmp_path, body(test_id="single"), "anywhere/one.json")
    loaded = found_in(tmp_path, [body(test_id="first"), body(test_id="second")], "tools/two.json")
    assert [(each.file, each.test_id) for each in loaded] == [
        ("anywhere/one.json", "single"),
        ("tools/two.json", "first"),
        ("tools/two.json", "second"),
    ]


def test_it_knows_what_only_a_harness_can_play(tmp_path: Path) -> None:
    event = {"test_id": "spawn", "description": "x", "event": {"type": "agent_spawn"}}
    scenario = {"test_id": "mixed", "description": "x", "steps": [{"event": {}}]}
    assert [each.of_a_harness for each in found_in(tmp_path, [event, scenario, body()])] == [True, True, False]


@pytest.mark.parametrize(
    ("schema", "good"),
    [
        ("plan", {"id": 1, "topic": "t", "issues": [], "created_at": TIME}),
        ("tasks", {"goal": "", "decisions": [], "tasks": []}),
        ("history", {"cycles": [{"completed_at": TIME, "branch": "b", "plan": None, "tasks": []}]}),
        ("runtime", {"teams_enabled": True, "session_started_at": TIME, "plugin_version": "1"}),
        (
            "agent-tracker",
            [{"agent_type": "a", "agent_id": "b", "started_at": TIME, "resume_count": 0, "status": "running"}],
        ),
    ],
)
def test_it_knows_the_state_files(schema: str, good: Any) -> None:
    assert problem(schema, good) is None
    entry = good if isinstance(good, dict) else good[0]
    for name in entry:
        less = {key: value for key, value in entry.items() if key != name}
        for broken in (less, {**entry, name: None}):
            assert problem(schema, broken if isinstance(good, dict) else [broken])
    more = {**entry, "note": ""}
    assert problem(schema, more if isinstance(good, dict) else [more])


@pytest.mark.parametrize("arguments", [["missing"], ["file"], ["empty"], ["suite", "-k", "nowhere"], []])
def test_it_ends_with_2_where_there_is_nothing_to_play(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("empty").mkdir()
    found_in(Path("suite"), body())
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2 and "error: " in capsys.readouterr().err
