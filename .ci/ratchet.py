#!/usr/bin/env python3
"""Counts what ratchet.toml limits, and fails where a number is over its limit. With --lower it lowers the limits.

It counts the files that git knows, without importing them.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

Nodes = Sequence[ast.AST]  # of one module
LIMITS = Path(__file__).with_name("ratchet.toml")


def counts() -> dict[str, int]:
    """Every number by its name in ratchet.toml."""
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S607
    files = [Path(name) for name in listed if Path(name).is_file()]
    source = [file for file in files if file.suffix in (".py", ".html", ".css", ".js")]
    product = [file for file in source if file.parts[0] not in ("tests", "docs")]
    code = [file for file in product if file.suffix == ".py" and file.parts[0] != "benchmarks"]
    modules = {file: list(ast.walk(ast.parse(file.read_bytes()))) for file in code}
    quick = tomllib.loads(Path("tests/counts.toml").read_text())["quick"].values()
    return {
        "lines": sum(map(lines, product)),
        "test_lines": sum(lines(file) for file in source if file.parts[0] == "tests"),
        "migrations": sum(file.parent.name == "migrations" and file.name != "__init__.py" for file in product),
        "settings": sum(calls(nodes, "setting") for file, nodes in modules.items() if file.name == "config.py"),
        "operations": sum(map(operations, modules.values())),
        "pages": sum(own_pages(nodes) for nodes in modules.values() if imports_page(nodes)),
        "doc_words": sum(
            len(file.read_text().split()) for file in files if file.parts[0] == "docs" and file.suffix == ".md"
        ),
        "glossary_terms": Path("docs/explanation/glossary.md").read_text().count("\n| **"),
        "quick_processes": sum(kind["processes"] for kind in quick),
    }


def lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def calls(nodes: Nodes, name: str) -> int:
    """How often a module calls a function by its bare name."""
    return sum(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == name for n in nodes)


def own_pages(nodes: Nodes) -> int:
    """How many declared pages have a view, the third argument; the others are lists of the admin in the sidebar."""
    return sum(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "Page" and len(n.args) > 2
        for n in nodes
    )


def imports_page(nodes: Nodes) -> bool:
    """Whether a module imports the `Page` that declares a page, since other classes have that name, too."""
    imported = [n for n in nodes if isinstance(n, ast.ImportFrom) and n.module == "nexus.core.contributions"]
    return any(alias.name == "Page" for each in imported for alias in each.names)


def operations(nodes: Nodes) -> int:
    """How many functions `@operation(…)` or `@TOOLSET.operation(…)` declares."""
    functions = (n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    called = (d.func for each in functions for d in each.decorator_list if isinstance(d, ast.Call))
    return sum(getattr(each, "id", getattr(each, "attr", "")) == "operation" for each in called)


def main() -> int:
    """Exit code 1 if a number is over its limit."""
    text = LIMITS.read_text()
    limits, counted = tomllib.loads(text), counts()
    if "--lower" in sys.argv[1:]:
        for name, count in counted.items():
            text = re.sub(rf"(?m)^{name} = \d+", f"{name} = {min(count, limits[name])}", text)
        LIMITS.write_text(text)
        return 0
    over = [name for name, count in counted.items() if count > limits[name]]
    for name, count in counted.items():
        limit = limits[name]
        if name in over:
            print(f"{name}: {count}, which is {count - limit} over its limit in .ci/ratchet.toml.", file=sys.stderr)
        elif limit - count > limit // 100:
            print(f"{name}: {count}, limit {limit}. Lower it: `python .ci/ratchet.py --lower`.")
    if over:
        print("Take something out, or raise the limit and say in the commit which user it serves.", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
