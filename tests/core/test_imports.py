"""What the linter of imports cannot see: a pure rule reads no clock; and that the linter itself would complain."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.acceptance.processes import environment

ROOT = Path(__file__).resolve().parents[2]
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
[PURE] = [each["source_modules"] for each in CONTRACTS if each["id"] == "pure"]
CLOCK = {"now", "utcnow", "today", "time", "monotonic"}


@pytest.mark.parametrize("name", PURE)
def test_it_keeps_pure_rules_from_the_clock(name: str) -> None:
    text = (ROOT / f"{name.replace('.', '/')}.py").read_text()
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert not {func.attr for func in calls if isinstance(func, ast.Attribute)} & CLOCK
    assert not {func.id for func in calls if isinstance(func, ast.Name)} & {"open", "print", "input"}


def test_no_import_within_a_room_runs_in_a_circle() -> None:
    tops = ("nexus", "coordination", "inbox", "handoffs")
    graph = grimp.build_graph(*tops, exclude_type_checking_imports=True)
    for room in (*tops[1:], *graph.find_children("nexus")):
        inside = {room, *graph.find_descendants(room)}
        imports = {each: graph.find_modules_directly_imported_by(each) & inside - {each} for each in inside}
        TopologicalSorter(imports).prepare()  # raises CycleError, which names one


@pytest.mark.usefixtures("starts_processes")
def test_it_sees_an_arrow_that_runs_back(tmp_path: Path) -> None:
    rooms = re.search(r"root_packages = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S)
    assert rooms
    below = [path.relative_to(ROOT) for path in (ROOT / "nexus").iterdir() if (path / "__init__.py").is_file()]
    for room in (*re.findall(r'"(\w+)"', rooms[1]), *map(str, below)):
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(
        re.sub(
            r'\[\[tool.importlinter.contracts\]\]\nid = "pure".*', "", (ROOT / "pyproject.toml").read_text(), flags=re.S
        )
    )
    linter = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    (tmp_path / "handoffs" / "fine.py").write_text("import inbox\n")
    assert subprocess.run(linter, cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "inbox" / "late.py").write_text("def late():\n    import handoffs.fine\n")
    ran = subprocess.run(linter, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 1 and "inbox is not allowed to import handoffs" in ran.stdout


SERVED = {"mcp", "mcp_types", "rest_framework", "channels", "starlette", "unfold"}  # agents and pages are


@pytest.mark.usefixtures("starts_processes")
@pytest.mark.parametrize(
    ("command", "left_out"),
    [
        ("questions list", SERVED),  # the SDK alone takes longer to import than all the rest of such a command
        ("run-pool --since 2026-01-01T00:00:00Z", SERVED | {"httpx", "httpx2", "pydantic_ai", "acp"}),
    ],
)
def test_it_starts_a_process_without_what_it_may_never_need(tmp_path: Path, command: str, left_out: set[str]) -> None:
    line = [sys.executable, "-X", "importtime", "manage.py", *command.split()]
    ran = subprocess.run(line, cwd=ROOT, env=environment(tmp_path / "home"), input="", capture_output=True, text=True)
    imported = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert "pydantic" in imported, ran.stderr
    assert imported & left_out == set()


EACH_CALL = ("git_steps", "sandbox_init")
SLOW = {"contextlib", "enum", "json", "pathlib", "re", "shutil", "subprocess", "threading"}


@pytest.mark.parametrize("name", ["core/guardian", *(f"control/runners/programs/{one}" for one in EACH_CALL)])
def test_what_is_started_for_each_call_imports_little(name: str) -> None:
    lines = ast.parse((ROOT / "nexus" / f"{name}.py").read_text()).body
    assert not {alias.name for line in lines if isinstance(line, ast.Import) for alias in line.names} & SLOW
    assert not {line.module for line in lines if isinstance(line, ast.ImportFrom)} & SLOW
