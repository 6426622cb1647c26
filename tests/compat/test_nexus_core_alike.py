"""The published server of nexus-core and ours, side by side: the same calls, answers and files; and one directory that
both work in.

NEXUS_DIFFERENCES_TABLE=write writes the table of what differs into docs/how-to/coming-from.md.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.compat.nexus_core import SERVER
from tests.compat.programs import Program, ours, published, timeless
from tests.conftest import at_once

pytestmark = [
    pytest.mark.skipif(not SERVER.exists(), reason="`make test` installs nexus-core from npm"),
    pytest.mark.sqlite,
]
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from.md"
FILES = ("state/plan.json", "state/tasks.json", "history.json")


class Call(NamedTuple):
    """A call of a tool. `here`: where both work in one directory, our server gets it."""

    name: str
    arguments: dict[str, Any]
    here: bool


class Side:
    """A project directory, and the servers that work in it."""

    def __init__(self, root: Path, *servers: Program) -> None:
        self.root, self.servers = root, servers

    def call(self, call: Call) -> Any:
        """The answer, without times; of artifacts in the order of their names."""
        found = timeless(self.servers[0 if call.here else -1].call(f"nx_{call.name}", call.arguments))
        if isinstance(found, dict) and "artifacts" in found:
            found["artifacts"].sort(key=lambda each: each["filename"])
        return found

    def files(self) -> dict[str, Any]:
        paths = {name: self.root / ".nexus" / name for name in FILES}
        return {name: timeless(json.loads(path.read_text())) for name, path in paths.items() if path.exists()}

    def clear(self) -> None:
        shutil.rmtree(self.root / ".nexus", ignore_errors=True)


class Sides(NamedTuple):
    """The published server alone, ours alone, and both in one directory."""

    theirs: Side
    ours: Side
    both: Side


def _project(folder: Path) -> Path:
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (folder / ".git" / name).mkdir()
    return folder


@pytest.fixture(scope="module")
def sides(runs_published: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    folder = tmp_path_factory.mktemp("alike")
    roots = {name: _project(folder / name) for name in Sides._fields}
    named = {name: {"NEXUS_PROJECT_ROOT": str(root)} for name, root in roots.items()}
    theirs = [published(SERVER, roots[name], **named[name]) for name in ("theirs", "both")]
    mine = [ours("nexus-core", folder / "home", **named[name]) for name in ("ours", "both")]
    yield Sides(Side(roots["theirs"], theirs[0]), Side(roots["ours"], mine[0]), Side(roots["both"], mine[1], theirs[1]))
    for program in (*theirs, *mine):
        program.end()


ROLES = st.sampled_from(["engineer", "architect", ""])
TIERS = st.sampled_from(["persistent", "bounded", "ephemeral"])
TEXTS = st.sampled_from(["", "Cache", "Größe 🙂", 'a "quoted"\nline', "x" * 300 + " needle " + "y" * 300, "NEEDLE"])
SAID = st.sampled_from(["Cache", "Größe 🙂", 'a "quoted"\nline', "x" * 300 + " needle " + "y" * 300])
IDS = st.one_of(st.integers(1, 4), st.sampled_from(["2", " 3 ", 1.0, True, 9]))
ODD: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 0, 1.5, "x", "", [], {}, [1], ["1"], "0x1", "1e0", False, [[]], "Infinity"]
)
OWNERS = st.fixed_dictionaries({"role": ROLES}, optional={"agent_id": TEXTS, "resume_tier": TIERS, "other": TEXTS})
RESULTS = st.fixed_dictionaries(
    {"outcome": st.sampled_from(["success", "failure", "partial"]), "summary": TEXTS},
    optional={"artifacts": st.lists(TEXTS, max_size=2)},
)
NAMES = st.sampled_from(["a.md", "b/c.md", "../d.md", "./b//e.md", "..", "b\\f.md"])
STATUSES = st.sampled_from(["pending", "in_progress", "completed"])
SEARCHED = ("acceptance", "approach", "risk", "result.outcome", "result.summary", "result.artifacts")
SCOPES = st.sampled_from(["all", "decision", "analysis", *(f"task.{each}" for each in SEARCHED)])
TOOLS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # the parameters that each needs, and may have
    "plan_start": ({"topic": TEXTS, "issues": st.lists(TEXTS, max_size=3), "research_summary": TEXTS}, {}),
    "plan_status": ({}, {}),
    "plan_update": (
        # Not `add` after `remove`: a number is not given again here, which is in the table.
        {"action": st.sampled_from(["add", "modify", "reopen"])},
        {"issue_id": st.one_of(st.integers(0, 4), st.just(1.5)), "title": TEXTS},
    ),
    "plan_decide": ({"issue_id": IDS, "decision": TEXTS}, {}),
    "plan_analysis_add": ({"issue_id": IDS, "role": ROLES, "summary": TEXTS}, {"agent_id": TEXTS}),
    "plan_resume": ({"role": ROLES}, {}),
    "task_add": (
        {"title": TEXTS, "context": TEXTS, "acceptance": TEXTS, "owner": OWNERS},
        {
            "approach": TEXTS,
            "risk": TEXTS,
            "plan_issue": IDS,
            "deps": st.lists(IDS, max_size=2),
            "goal": SAID,
            "decisions": st.lists(TEXTS, max_size=2),
        },
    ),
    "task_list": ({}, {"include_completed": st.booleans()}),
    "task_update": (
        {"id": IDS},
        {
            "status": STATUSES,
            "acceptance": TEXTS,
            "approach": TEXTS,
            "risk": TEXTS,
            "owner": st.fixed_dictionaries(
                {}, optional={"agent_id": st.none() | TEXTS, "resume_tier": st.none() | TIERS}
            ),
            "result": RESULTS,
        },
    ),
    "task_close": ({}, {"force": st.booleans()}),
    "task_resume": ({"id": IDS}, {}),
    "history_search": (
        {},
        {
            "query": TEXTS,
            "last_n": st.integers(1, 3),
            "scope": SCOPES,
            "mode": st.sampled_from(["snippet", "full"]),
            "group_by_cycle": st.booleans(),
        },
    ),
    "artifact_write": ({"filename": NAMES, "content": TEXTS}, {}),
    "artifact_list": ({}, {"prefix": st.sampled_from(["", "b", "b/"])}),
}


@st.composite
def calls(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Call:
    """A call; one of five has an argument that is odd or missing."""
    name = draw(st.sampled_from(["task_add", "plan_analysis_add", "plan_decide", "task_update", *TOOLS]))
    needed, optional = TOOLS[name]
    arguments = draw(st.fixed_dictionaries(needed, optional=optional))
    if {**needed, **optional} and draw(st.integers(0, 4)) == 0:
        which = draw(st.sampled_from(sorted({**needed, **optional})))
        arguments.pop(which, None)
        if draw(st.booleans()):
            arguments[which] = draw(ODD)
    return Call(name, arguments, draw(st.booleans()))


START = Call("plan_start", {"topic": "Cache", "issues": ["Which?", "Who?"], "research_summary": "Read it."}, True)
BEGIN = Call("task_add", {"title": "Write", "context": "c", "acceptance": "runs", "owner": {"role": "engineer"}}, False)


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(day=st.lists(calls(), min_size=6, max_size=12))
def test_a_day_of_calls_has_equal_answers_and_files(sides: Sides, day: list[Call]) -> None:
    for side in sides:
        side.clear()
    for call in (START, BEGIN, *day):
        wanted = sides.theirs.call(call)
        assert sides.ours.call(call) == wanted, call
        assert sides.both.call(call) == wanted, call
    wanted = sides.theirs.files()
    assert sides.ours.files() == wanted
    assert sides.both.files() == wanted


def test_it_answers_every_mistake_alike(sides: Sides) -> None:
    for side in sides:
        side.clear()
    strange: list[Any] = [None, 1.5, "x", [], {}]
    for name, (needed, optional) in TOOLS.items():
        for odd in ({}, *({each: value} for each in {**needed, **optional} for value in strange)):
            call = Call(name, odd, True)
            assert sides.ours.call(call) == sides.theirs.call(call), call
    for name in ("nope", "plan"):
        assert sides.ours.call(Call(name, {}, True)) == sides.theirs.call(Call(name, {}, True))


def test_two_programs_that_write_at_once_lose_nothing(sides: Sides) -> None:
    """One of each: what either acknowledged is in the files, under a number of its own."""
    sides.both.clear()
    sides.both.call(START)

    def write(server: Program, role: str) -> list[Any]:
        answers = []
        for number in range(15):
            title = f"{role} {number}"
            answers.append(server.call("nx_task_add", {**BEGIN.arguments, "title": title})["task"])
            server.call("nx_plan_analysis_add", {"issue_id": 1, "role": role, "summary": title})
        return answers

    mine, theirs = sides.both.servers
    added = at_once([lambda: write(mine, "mine"), lambda: write(theirs, "theirs")])
    files = sides.both.files()
    assert [(task["id"], task["title"]) for task in files["state/tasks.json"]["tasks"]] == sorted(
        (task["id"], task["title"]) for tasks in added for task in tasks
    )
    said = [entry["summary"] for entry in files["state/plan.json"]["issues"][0]["analysis"]]
    assert sorted(said) == sorted(task["title"] for tasks in added for task in tasks)


def test_it_writes_large_artifacts_alike(sides: Sides) -> None:
    for side in sides:
        side.clear()
    for content in ("x" * 100_000, "[{,é" * 200_000):
        call = Call("artifact_write", {"filename": "report.md", "content": content}, True)
        assert sides.ours.call(call) == sides.theirs.call(call)
        assert (sides.ours.root / ".nexus/state/artifacts/report.md").read_text() == content


class Difference(NamedTuple):
    """What remains different: the last call's answer, of which the table shows a part."""

    what: str
    calls: tuple[Call, ...]
    shown: Callable[[Any], Any]
    why: str
    before: Callable[[Path], object] = lambda root: None


def _add(**more: Any) -> Call:
    return Call("task_add", {**BEGIN.arguments, **more}, True)


def _truncate(root: Path) -> None:
    (root / ".nexus" / "state").mkdir(parents=True)
    (root / ".nexus" / "state" / "tasks.json").write_text('{"tasks": [')


def _detach(root: Path) -> None:
    (root / ".git" / "HEAD").write_text("0123456789" * 4 + "\n")


DIFFERENCES = (
    Difference(
        "the number of an issue that is added after the last one was removed",
        (
            START,
            Call("plan_update", {"action": "remove", "issue_id": 2}, True),
            Call("plan_update", {"action": "add", "title": "When?"}, True),
        ),
        lambda answer: answer["issue_id"],
        "A number means one issue for good.",
    ),
    Difference(
        "`tasks.json` is truncated",
        (Call("task_list", {}, True),),
        lambda answer: answer if isinstance(answer, str) else f"{len(answer['tasks'])} tasks",
        "The next task would overwrite the file. Here it stays as it is.",
        _truncate,
    ),
    Difference(
        "a text with a NUL character",
        (_add(title="a\0b"),),
        lambda answer: answer if isinstance(answer, str) else "added",
        "No store takes it.",
    ),
    Difference(
        "a text over 64 KiB, but not in an artifact",
        (_add(context="x" * 70_000),),
        lambda answer: answer if isinstance(answer, str) else "added",
        "The setting `max_inline_bytes` is the limit.",
    ),
    Difference(
        "an issue that no plan can have",
        (_add(plan_issue=2**60),),
        lambda answer: answer if isinstance(answer, str) else "added",
        "Not every program reads such a number exactly.",
    ),
    Difference(
        "`goal` is empty",
        (_add(goal=""), Call("task_list", {}, True)),
        lambda answer: json.dumps(answer.get("goal", "left out")),
        "No goal and an empty one are the same.",
    ),
    Difference(
        "the branch of a cycle that was closed on a detached head",
        (Call("task_close", {}, True), Call("history_search", {}, True)),
        lambda answer: json.dumps(answer["cycles"][0]["branch"]),
        "The commit says more.",
        _detach,
    ),
)


def test_the_table_in_the_docs_is_what_differs(sides: Sides) -> None:
    lines = ["| what | nexus-core 0.21 | Nexus | why |", "|---|---|---|---|"]
    for difference in DIFFERENCES:
        found = []
        for side in (sides.theirs, sides.ours):
            head = (side.root / ".git" / "HEAD").read_text()
            side.clear()
            difference.before(side.root)
            answers = [side.call(call) for call in difference.calls]
            found.append(str(difference.shown(answers[-1])))
            (side.root / ".git" / "HEAD").write_text(head)
        assert found[0] != found[1], difference.what
        lines.append(f"| {difference.what} | {found[0]} | {found[1]} | {difference.why} |")
    table = "\n".join(lines)
    before, begin, rest = PAGE.read_text().partition("<!-- differences: nexus-core -->\n\n")
    _, end, after = rest.partition("\n\n<!-- end -->")
    if os.environ.get("NEXUS_DIFFERENCES_TABLE") == "write":
        PAGE.write_text(f"{before}{begin}{table}{end}{after}")
    assert table in PAGE.read_text(), "run this test with NEXUS_DIFFERENCES_TABLE=write"
