"""What tests need from outside Python: programs of the machine, and packages from npm that are fetched once."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from filelock import FileLock

NODE = Path(__file__).parents[1] / ".venv-node"
PACKAGES = [
    "@modelcontextprotocol/sdk@1.32.2",  # this and the next: the newest that run on Node 20
    "@modelcontextprotocol/conformance@0.1.13",
    "axe-core@4",
    "@octokit/openapi@23.0.2",
    "jsonc-parser@3",  # reads what VS Code reads
    "json5@2",
]


def program(name: str) -> str:
    """Where a program is. Without it a contributor's test is skipped; CI installs it, so there the test fails."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{name} is not installed")
    if found is None:
        pytest.skip(f"{name} is not installed: this test runs with it")
    return found


def npm_packages() -> Path:
    """A directory with `node_modules`, whichever of many test processes comes first to fill it."""
    npm = program("npm")
    with FileLock(f"{NODE}.lock"):
        filled = NODE / "installed"
        if not filled.exists() or filled.read_text() != " ".join(PACKAGES):
            NODE.mkdir(exist_ok=True)
            command = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(NODE), *PACKAGES]
            subprocess.run(command, check=True, timeout=300)
            filled.write_text(" ".join(PACKAGES))
    return NODE
