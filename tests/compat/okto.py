"""The published packages of okto-nexus, each in an environment of its own, and stores that they made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VERSIONS = ("0.0.1", "0.3.1")
WITH = (
    "mcp==1.30.0",
    "fastapi==0.165.0",
)  # 0.0.1 does not start with the second series of mcp; its REST needs the other
DAY = Path(__file__).with_name("okto_day.py")
FOLDER = Path(os.environ.get("NEXUS_OKTO") or Path(sys.prefix, "okto"))


def python(version: str) -> Path:
    """Return the Python that has a version."""
    return FOLDER / version / "bin" / "python"


def is_installed(version: str) -> bool:
    marker = FOLDER / version / "installed"
    return marker.exists() and marker.read_text() == " ".join(WITH)


def install(version: str) -> None:
    """Install a version from PyPI, unless it is there. Raises CalledProcessError."""
    if not is_installed(version):
        print(f"Installing okto-nexus {version}.", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", FOLDER / version], check=True)
        pip = [str(python(version)), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"okto-nexus=={version}", *WITH], check=True)
        (FOLDER / version / "installed").write_text(" ".join(WITH))


def play(version: str, home: Path, project: Path, messages: int) -> dict[str, Any]:
    """Let a version make a store; return what its agents see at the end."""
    command = [str(each) for each in (python(version), "-P", DAY, home, project, messages)]
    played = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "HOME": str(home)})
    answer: dict[str, Any] = json.loads(played.stdout)
    return answer


def repeat(version: str, home: Path, calls: Sequence[Any]) -> dict[str, Any]:
    """Let a version answer calls over a store; return the answers, and its tools."""
    command = [str(each) for each in (python(version), "-P", DAY, home)]
    environ = {**os.environ, "HOME": str(home)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ, input=json.dumps(calls))
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


if __name__ == "__main__":
    for each in VERSIONS:
        install(each)
