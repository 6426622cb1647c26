"""The published Agent Bus, in an environment of its own; it wants Python 3.12, and a C library of 2.38.

`agent_bus.py calls`, run with the Python that has the package, makes the calls that it reads as JSON and prints the
answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

VERSION = "0.5.1"
WITH = ("mcp==1.30.0",)
FOLDER = Path(os.environ.get("NEXUS_AGENT_BUS") or Path(sys.prefix, "agent-bus"))
PYTHON, SHIM = FOLDER / "bin" / "python", FOLDER / "shim.so"
# Its core is linked against glibc 2.38: an older one lacks these names of functions that it has.
MISSING = """
#include <stdlib.h>
long __isoc23_strtol(const char *s, char **e, int b) { return strtol(s, e, b); }
long long __isoc23_strtoll(const char *s, char **e, int b) { return strtoll(s, e, b); }
unsigned long long __isoc23_strtoull(const char *s, char **e, int b) { return strtoull(s, e, b); }
"""


def install() -> None:
    """Install it from PyPI, unless it is there, or what it needs is not. Raises CalledProcessError."""
    named = [shutil.which(f"python3.{minor}") for minor in (12, 13, 14)]
    pythons = [*filter(None, named), *map(str, Path.home().glob(".pyenv/versions/3.1[2-9]*/bin/python"))]
    found = next(
        (each for each in pythons if not subprocess.run([each, "-c", ""], capture_output=True).returncode), None
    )
    if SHIM.exists():
        return
    if found is None or shutil.which("cc") is None:
        print("Agent Bus needs Python 3.12 and a C compiler: it is not installed, and not compared.", flush=True)
        return
    print(f"Installing Agent Bus {VERSION}.", flush=True)
    subprocess.run([found, "-m", "venv", "--clear", FOLDER], check=True)
    pip = [str(PYTHON), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"agent-bus-mcp=={VERSION}", *WITH], check=True)
    subprocess.run(
        ["cc", "-std=gnu11", "-shared", "-fPIC", "-x", "c", "-", "-o", SHIM], input=MISSING, text=True, check=True
    )


def repeat(store: Path, calls: list[Any]) -> list[dict[str, Any]]:
    """Let it answer calls over a store; return what each answered, or the code of its error."""
    environ = {**os.environ, "AGENT_BUS_DB": str(store), "LD_PRELOAD": str(SHIM)}
    command = [str(PYTHON), "-P", __file__, "calls"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environ, input=json.dumps(calls))
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


async def _answers(calls: list[Any]) -> list[dict[str, Any]]:
    from agent_bus.peer_server import mcp  # type: ignore[import-not-found]
    from mcp.server.fastmcp.exceptions import ToolError  # type: ignore[import-not-found]

    answers: list[dict[str, Any]] = []
    for tool, arguments in calls:
        try:
            answer = await mcp.call_tool(tool, filled(arguments, answers))
            answers.append(answer.structuredContent)
        except ToolError:
            answers.append({"error": {"code": None}})  # the text of a library
    return answers


def filled(arguments: dict[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return arguments with what an earlier call answered in the place of `["$", call, field]`."""
    return {
        name: answers[value[1]][value[2]] if isinstance(value, list) and value[:1] == ["$"] else value
        for name, value in arguments.items()
    }


if __name__ == "__main__" and sys.argv[1:] == ["calls"]:
    print(json.dumps(asyncio.run(_answers(json.load(sys.stdin)))))
elif __name__ == "__main__":
    install()
