"""Coverage-guided fuzzing of what reads other people's text, with Atheris: each parser in a process of its own.

    pip install 'nexus-hub[fuzz]'
    python -m benchmarks.fuzz --seconds 300

A parser may answer or refuse with its documented error; anything else ends the run with exit code 1 and the input.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris

ROOT = Path(__file__).resolve().parent.parent
WORDS = ["direct", "role", "capability", "broadcast", "mixed", "direct_with_fallback", " Direct-With Fallback "]
INSTRUMENTED = (
    "coordination.routing",
    "nexus.core.config",
    "inbox.selectors",
    "handoffs.operations",
    "mcp_bridge.stdio",
)
KEYS = ["strategy", "kind", "agent_id", "role", "capability", "preferred", "rules", "fallback"]
KEYS += ["fallback_after_seconds", "x"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for all parsers together (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--target", choices=sorted(TARGETS), help="fuzz this one alone, in this process")
    options = parser.parse_args()
    if options.target:
        fuzz(options.target, options.seconds)
        return
    figures = {name: measure(name, max(1, options.seconds // len(TARGETS))) for name in TARGETS}
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    sys.exit(0 if all(figure["failure"] is None for figure in figures.values()) else 1)


def measure(target: str, seconds: int) -> dict[str, Any]:
    """Fuzz one parser in a process of its own: its executions, the edges it covered, and how it failed, if it did."""
    with tempfile.TemporaryDirectory(prefix="nexus-fuzz-") as home:
        command = [sys.executable, "-m", "benchmarks.fuzz", "--target", target, "--seconds", str(seconds)]
        environ = {**os.environ, "NEXUS_HOME": home, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(command, cwd=home, env=environ, capture_output=True, text=True, errors="replace")
    runs = re.search(r"Done (\d+) runs", ended.stderr)
    covered = re.findall(r"cov: (\d+)", ended.stderr)
    return {
        "executions": int(runs[1]) if runs else 0,
        "covered": int(covered[-1]) if covered else 0,
        "failure": None if ended.returncode == 0 and runs else (ended.stdout + ended.stderr)[-4000:],
    }


def table(figures: dict[str, dict[str, Any]]) -> str:
    """The figures for people."""
    rows = [f"{'parser':12}{'executions':>12}{'covered':>9}  failure"]
    rows += [
        f"{name:12}{figure['executions']:12}{figure['covered']:9}  {figure['failure'] or 'none'}"
        for name, figure in figures.items()
    ]
    return "\n".join(rows)


def fuzz(target: str, seconds: int) -> None:
    """Fuzz one parser until the time is over; does not return."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "nexus_site.settings_agent"
    with atheris.instrument_imports(include=list(INSTRUMENTED)):
        import django

        django.setup()
        for module in INSTRUMENTED:
            importlib.import_module(module)
    one = TARGETS[target]()
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096"], one)
    atheris.Fuzz()


def targets() -> Callable[[bytes], None]:
    """`routing.parse_target`: what it takes is canonical, so that it takes it again unchanged."""
    from coordination.routing import parse_target
    from nexus.core.operations.errors import Code, NexusError

    def one(data: bytes) -> None:
        provider = atheris.FuzzedDataProvider(data)
        value = _json(provider, 6)
        try:
            parsed = parse_target(value, timed=provider.ConsumeBool())
        except NexusError as error:
            assert error.code == Code.VALIDATION_ERROR and error.details["path"]
        else:
            assert parse_target(parsed) == parsed

    return one


def cursors() -> Callable[[bytes], None]:
    """The cursors of `inbox_history`, and those that are the id of an event."""
    from inbox import selectors
    from nexus.core.operations.errors import Code, NexusError
    from nexus.core.operations.parameters import parse_cursor

    def one(data: bytes) -> None:
        provider = atheris.FuzzedDataProvider(data)
        text = provider.ConsumeUnicode(200)
        wrapped = base64.urlsafe_b64encode(text.encode(errors="replace")).decode()
        for cursor in (text, wrapped):
            try:
                selectors._decode(cursor)
            except NexusError as error:
                assert error.code == Code.VALIDATION_ERROR
        try:
            assert 0 <= parse_cursor(text) < 2**63
        except NexusError as error:
            assert error.code == Code.VALIDATION_ERROR

    return one


def settings() -> Callable[[bytes], None]:
    """`config.parse`: every setting from any text."""
    from nexus.core.config import TABLE, parse
    from nexus.core.operations.errors import Code, NexusError

    def one(data: bytes) -> None:
        provider = atheris.FuzzedDataProvider(data)
        name = list(TABLE)[provider.ConsumeIntInRange(0, len(TABLE) - 1)]
        try:
            parse(name, provider.ConsumeUnicode(200), "--flag")
        except NexusError as error:
            assert error.code == Code.CONFIG_ERROR

    return one


def lines() -> Callable[[bytes], None]:
    """A line on stdin that is no message: the answer is one, and carries the line's id or none."""
    from mcp_types import jsonrpc_message_adapter
    from pydantic import ValidationError

    from mcp_bridge.stdio import _answer
    from nexus.core.operations.replies import ENVELOPE

    start = b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"inbox_pull","arguments":'

    def one(data: bytes) -> None:
        for line in (data, start + data):
            try:
                jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError as error:
                answer = _answer(error, ENVELOPE).model_dump_json(by_alias=True)
                assert jsonrpc_message_adapter.validate_json(answer)

    return one


def _json(provider: Any, depth: int) -> Any:
    """A JSON value in the likeness of a target."""
    match provider.ConsumeIntInRange(0, 9 if depth else 5):
        case 0:
            return provider.ConsumeUnicode(12)
        case 1:
            return provider.ConsumeFloat()
        case 2:
            return provider.PickValueInList([None, True, False, 0, -1, 10**400])
        case 3 | 4 | 5:
            return provider.PickValueInList(WORDS)
        case 6:
            return [_json(provider, depth - 1) for _ in range(provider.ConsumeIntInRange(0, 4))]
    members = {
        provider.PickValueInList(KEYS): _json(provider, depth - 1) for _ in range(provider.ConsumeIntInRange(0, 4))
    }
    return {"strategy": provider.PickValueInList(WORDS), **members}


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "targets": targets,
    "cursors": cursors,
    "settings": settings,
    "lines": lines,
}

if __name__ == "__main__":
    main()
