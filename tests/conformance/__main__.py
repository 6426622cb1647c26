"""Play conformance fixtures in the published format against this installation's planning tools, over stdio."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from tests.conformance.loading import Fixture, load
from tests.conformance.runner import Git, play, server

EPILOG = """examples:
  python -m tests.conformance tests/conformance/fixtures
  python -m tests.conformance ../suite/conformance -k task_close --json

exit codes:
  0  every fixture that applies agrees
  1  one does not, or is no fixture
  2  there is nothing to play
"""
SIGNS = {"passed": "ok", "failed": "FAIL", "not applicable": "n/a"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Play a directory, tell each fixture's outcome, and get the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the fixtures are; folders below it, too")
    parser.add_argument("-k", dest="part", default="", metavar="PART", help="only those with PART in file or test_id")
    parser.add_argument(
        "--git", choices=get_args(Git), default="none", help="what each project directory is in git (none)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    if not options.directory.is_dir():
        parser.error(f"{options.directory} is no directory")
    fixtures = [each for each in load(options.directory) if options.part in f"{each.file} {each.test_id}"]
    if not fixtures:
        named = f" with {options.part!r} in its name" if options.part else ""
        parser.error(f"{options.directory} holds no fixture{named}")
    played = list(_played(fixtures, options.git))
    counts = Counter(each["outcome"] for each in played)
    summary = {outcome: counts[outcome] for outcome in SIGNS}
    if options.json:
        print(json.dumps({**summary, "fixtures": played}, ensure_ascii=False, indent=2))
    else:
        for each in played:
            print(f"{SIGNS[each['outcome']]:4}  {each['file']}  {each['test_id']}".rstrip())
            for line in each["problems"]:
                print(f"        {line}")
        print(", ".join(f"{count} {outcome}" for outcome, count in summary.items()))
    return 1 if counts["failed"] else 0


def _played(fixtures: Sequence[Fixture], git: Git) -> Iterator[dict[str, Any]]:
    """Each fixture's file, test_id, outcome and problems."""
    with tempfile.TemporaryDirectory(prefix="nexus-conformance-") as scratch:
        place = Path(scratch).resolve()
        with server(place / "home") as call:
            for number, fixture in enumerate(fixtures):
                project = place / f"project-{number}"
                project.mkdir()
                if fixture.of_a_harness:
                    outcome, problems = "not applicable", ["an event of a harness; only tools are played"]
                else:
                    problems = play(fixture, call, project, git)
                    outcome = "failed" if problems else "passed"
                yield {"file": fixture.file, "test_id": fixture.test_id, "outcome": outcome, "problems": problems}


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
