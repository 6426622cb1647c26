"""Imports point one way: no app knows a later one, and pure rules know neither Django nor the clock."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# A later room may import an earlier one.
ARROW = ["coordination", "inbox", "handoffs", "hooks", "mcp_bridge", "nexus_site"]
PURE = ["coordination/routing.py", "handoffs/lifecycle.py", "inbox/lanes.py"]
IMPURE = {"django", "time", "os", "sqlite3", "pathlib", "io", "socket", "random", "asyncio", "threading", "logging"}
CLOCK = {"now", "utcnow", "today", "time", "monotonic"}


def imports(path: Path) -> set[str]:
    """Every module that a file names in an import, wherever in the file it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def files(app: str) -> list[Path]:
    return sorted((ROOT / app).rglob("*.py"))


def backward(app: str) -> list[str]:
    later = set(ARROW[ARROW.index(app) + 1 :])
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files(app)
        for module in sorted(imports(path))
        if module.split(".")[0] in later
    ]


@pytest.mark.parametrize("app", ARROW)
def test_it_imports_no_later_app(app: str) -> None:
    assert len(files(app)) > 3
    assert backward(app) == []


@pytest.mark.parametrize("app", ARROW)
def test_it_imports_neither_tests_nor_benchmarks(app: str) -> None:
    strangers = {"tests", "benchmarks"}
    assert [path for path in files(app) if {module.split(".")[0] for module in imports(path)} & strangers] == []


def test_it_sees_an_arrow_that_runs_back(tmp_path: Path) -> None:
    source = tmp_path / "room.py"
    source.write_text("def late():\n    from inbox.models import Delivery\nimport handoffs.services as h\n")
    assert imports(source) >= {"inbox.models", "handoffs.services"}


@pytest.mark.parametrize("name", PURE)
def test_it_keeps_pure_rules_pure(name: str) -> None:
    path = ROOT / name
    assert not {module.split(".")[0] for module in imports(path)} & IMPURE
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not {func.attr for func in calls if isinstance(func, ast.Attribute)} & CLOCK
    assert not {func.id for func in calls if isinstance(func, ast.Name)} & {"open", "print", "input"}


@pytest.mark.parametrize("name", PURE)
def test_it_lets_pure_rules_know_pure_rules_alone(name: str) -> None:
    own = {module for module in imports(ROOT / name) if module.split(".")[0] in ARROW}
    rooms = {"coordination.errors", "coordination.routing"}
    assert all(any(module == room or module.startswith(f"{room}.") for room in rooms) for module in own), own


@pytest.mark.parametrize("app", ARROW)
def test_it_keeps_transports_out_of_the_rules(app: str) -> None:
    """What decides, writes and reads knows nothing of MCP, HTTP or WebSockets."""
    rooms = [
        *(ROOT / app).glob("services/*.py"),
        *(ROOT / app / name for name in ("services.py", "selectors.py", "models.py")),
    ]
    transports = ("mcp", "rest_framework", "channels", "django.http", "starlette")
    for path in rooms:
        if path.exists():
            assert not [module for module in imports(path) if module.startswith(transports)], path
