"""Measure Nexus on this machine: every benchmark that takes minutes, each in a process of its own.

python -m benchmarks                      # about half an hour
python -m benchmarks --only fairness      # who waits while one key floods the hub
python -m benchmarks --only waits,send    # a row of the table of fairness, and a benchmark
python -m benchmarks --only team --team 100x1

`python -m benchmarks.NAME --help` shows the options of one benchmark; they go behind --only where it names that one
alone.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys

from benchmarks.fairness import ROWS
from benchmarks.harness import ROOT, Figures, table

BENCHMARKS = (
    *("fairness", "team", "calls", "send", "stdio", "relay", "hook"),
    *("files", "planning", "control", "contention", "postgres", "distance", "fanout"),
)
LONG = ("years", "soak", "importing", "events")  # played only where --only names them


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="\n".join(f"{name:12}{about(name)}" for name in (*BENCHMARKS, *LONG)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help=f"names between commas; rows of the table of fairness: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="measure little, to see that it works")
    parser.add_argument("--json", action="store_true", help="print one JSON object: by benchmark, by column, by line")
    options, more = parser.parse_known_args()
    names = options.only.split(",") if options.only else BENCHMARKS
    if unknown := {*names} - {*BENCHMARKS, *LONG, *ROWS}:
        parser.error(f"there is no benchmark {min(unknown)!r}")
    chosen = {name: more for name in names if name not in ROWS or name in BENCHMARKS}
    if rows := [name for name in names if name in ROWS]:
        chosen["fairness"] = [flag for row in rows for flag in ("--row", row)]
    if more and len(chosen) > 1:
        parser.error(f"{more[0]} belongs to one benchmark: name that one alone")
    played = {name: play(name, options.quick, flags, options.json) for name, flags in chosen.items()}
    if options.json:
        print(json.dumps(played, indent=2))
    sys.exit(any(figures is None for figures in played.values()))


def about(name: str) -> str:
    """The question that a benchmark answers."""
    files = (ROOT / "benchmarks" / f"{name}.py", ROOT / "benchmarks" / name / "__main__.py")
    text = next(file for file in files if file.exists()).read_text()
    return (ast.get_docstring(ast.parse(text)) or "").splitlines()[0]


def play(name: str, quick: bool, flags: list[str], quiet: bool) -> Figures | None:
    """Play a benchmark and print its table; None if it failed, which it says on stderr."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *(["--quick"] if quick else []), *flags]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    figures: Figures = json.loads(ended.stdout or "{}")
    if not quiet:
        print(f"{name}: {about(name)}", table(figures), "", sep="\n", flush=True)
    return None if ended.returncode else figures


if __name__ == "__main__":
    main()
