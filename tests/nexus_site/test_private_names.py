"""Nothing of ours uses what another library keeps to itself: such a name is an upgrade that only its author can do."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"nexus", "coordination", "inbox", "handoffs", "mcp_bridge", "nexus_site", "manage"}
DOCUMENTED = {
    *("_asdict", "_replace", "_fields", "_make", "_value_", "_name_", "_missing_"),  # Python
    *("_exit",),  # os
    *("_meta", "_default_manager", "_base_manager", "_state"),  # Django
}
SETTABLE = {"sys", "settings"}  # modules whose attributes are documented to be set
# By file and name, why it cannot go yet. A line whose name is gone must go, too.
EXCEPTIONS: dict[tuple[str, str], str] = {
    **{
        ("coordination/admin.py", f"User._meta.{name}"): "Django: no way to name the models of another app on pages"
        for name in ("app_config.verbose_name", "verbose_name", "verbose_name_plural")
    },
}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in DOCUMENTED and name != "_"


def defined(nodes: list[ast.AST]) -> set[str]:
    """Return the names that a module defines."""
    names = set[str]()
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store(), value=ast.Name(id="self" | "cls")):
                names.add(name)
            case ast.Constant(value=str(name)):  # of __slots__
                names.add(name)
    return names


def imported(nodes: list[ast.AST]) -> set[str]:
    """Return the names that a module has from other libraries."""
    names = set[str]()
    for node in nodes:
        match node:
            case ast.Import(names=aliases):
                names |= {(a.asname or a.name).split(".")[0] for a in aliases if a.name.split(".")[0] not in OURS}
            case ast.ImportFrom(module=str(module), names=aliases) if module.split(".")[0] not in OURS:
                names |= {a.asname or a.name for a in aliases}
    return names - SETTABLE


def doors(modules: dict[str, list[ast.AST]]) -> Iterator[tuple[str, int, str]]:
    """Yield each use of a private name of a library, of its private modules, and each attribute of it that is
    patched: file, line and name."""
    ours = set(chain.from_iterable(map(defined, modules.values())))
    for file, nodes in modules.items():
        here, foreign = defined(nodes), imported(nodes)
        for node in nodes:
            match node:
                case ast.Attribute(attr=name, value=value) if private(name):
                    of_self = isinstance(value, ast.Name) and value.id in ("self", "cls")
                    of_base = isinstance(value, ast.Call) and ast.unparse(value.func) == "super"
                    if of_base or name not in (ours if of_self else here):
                        yield file, node.lineno, name
                case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]) if (
                    private(name)
                ):
                    yield file, node.lineno, name
                case ast.Import(names=aliases):
                    yield from ((file, node.lineno, a.name) for a in aliases if any(map(private, a.name.split("."))))
                case ast.ImportFrom(module=str(module), names=aliases):
                    parts = [*module.split("."), *(a.name for a in aliases)]
                    if module.split(".")[0] not in OURS and any(map(private, parts)):
                        yield file, node.lineno, module
                case ast.Attribute(ctx=ast.Store() | ast.Del()) if root_of(node) in foreign:
                    yield file, node.lineno, ast.unparse(node)
                case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[target, *_]) if root_of(target) in foreign:
                    yield file, node.lineno, ast.unparse(target)


def root_of(node: ast.AST) -> str:
    """Return the name at the root of `a.b[c].d`; empty for another expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def overrides(modules: dict[str, list[ast.AST]]) -> Iterator[tuple[str, int, str]]:
    """Yield each private name of a library's class that a class of ours defines anew."""
    for file, nodes in modules.items():
        for node in nodes:
            if not isinstance(node, ast.ClassDef) or not node.bases:
                continue
            names = {name for each in node.body for name in defined([each]) if private(name)}
            of_module = names and getattr(import_module(file.removesuffix(".py").replace("/", ".")), node.name, None)
            theirs = [c for c in getattr(of_module, "__mro__", ()) if c.__module__.split(".")[0] not in OURS]
            yield from ((file, node.lineno, name) for name in names if any(name in vars(c) for c in theirs))


@pytest.fixture(scope="module")
def modules() -> dict[str, list[ast.AST]]:
    """Our modules by their file, as nodes."""
    listed = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [file for file in listed.stdout.splitlines() if file.split("/")[0] in OURS and (ROOT / file).is_file()]
    return {file: list(ast.walk(ast.parse((ROOT / file).read_bytes()))) for file in files}


@pytest.mark.usefixtures("runs_git")
def test_no_module_uses_a_private_name_of_a_library(modules: dict[str, list[ast.AST]]) -> None:
    found = {(file, name): line for file, line, name in [*doors(modules), *overrides(modules)]}
    assert found.keys() - EXCEPTIONS.keys() == set(), found
    assert EXCEPTIONS.keys() - found.keys() == set(), "these are gone: take their lines out"


@pytest.mark.parametrize(
    "source",
    [
        "import _signal",
        "from asyncio import _private",
        "from httpx._client import Client",
        "def see(request): return request._request",
        "def see(request): return getattr(request, '_request')",
        "class Ours(Theirs):\n def _do(self): super()._do()",
        "class Ours(Theirs):\n def do(self): return self._do()",
        "import http.client\nhttp.client.HTTPConnection.debuglevel = 1",
        "from http.client import HTTPConnection\nsetattr(HTTPConnection, 'debuglevel', 1)",
    ],
)
def test_it_finds_each_kind(source: str) -> None:
    assert len(list(doors({"ours.py": list(ast.walk(ast.parse(source)))}))) == 1


def test_it_lets_pass_what_is_ours_or_documented() -> None:
    source = "import sys\nsys.stdin = 0\nclass Ours:\n def _do(self): self._done = Model._meta\n"
    source += " def do(self, other): other._do()"
    assert list(doors({"ours.py": list(ast.walk(ast.parse(source)))})) == []
