"""`nexus demo`: shows a small team of agents at work."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup, NexusCommand, positive
from nexus.core.operations.errors import Code, NexusError
from nexus_site import demo, ending

PAGES = ("timeline", "board", "coordination/event")


class Command(NexusCommand):
    group = CommandGroup.HUB
    help = (
        "Show a small team at work: a planner, two workers that compete and a reviewer. Each is a real MCP client of a "
        "hub that the demo starts over a temporary home. No model answers."
    )
    examples = """examples:
  nexus demo
  nexus demo --rounds 30 --fast

exit codes: 0 the team has built every part; 1 it could not"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--rounds", type=positive, default=8, help="parts that are built (default: %(default)s)")
        pace = parser.add_mutually_exclusive_group()
        pace.add_argument("--pause", type=float, default=1.0, help="seconds between steps (default: %(default)s)")
        pace.add_argument("--fast", action="store_const", const=0.02, dest="pause", help="almost without pauses")

    def run(self, *, rounds: int, pause: float, **options: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="nexus-demo-") as scratch:
            home, project = (Path(scratch).resolve() / name for name in ("home", "project"))
            home.mkdir(mode=0o700)
            project.mkdir()
            try:
                with demo.shown(home), demo.serving(home) as url:  # what is shown ends last
                    pages = "\n".join(f"  {url}/admin/{page}/" for page in PAGES)
                    self.stdout.write(f"The team plays on a hub of its own. Look on in a browser:\n{pages}\n")
                    self.stdout.flush()  # before what happens, which another process writes
                    ending.run(demo.play(url, str(project), rounds, max(pause, 0)))
            except* Exception as failures:
                raise NexusError(Code.INTERNAL_ERROR, f"The demo ended early: {_first(failures)}") from None
        self.stdout.write(f"All {rounds} parts are built.")


def _first(failures: BaseExceptionGroup[Exception]) -> str:
    """Return the first failure in one line."""
    failure: BaseException = failures
    while isinstance(failure, BaseExceptionGroup):
        failure = failure.exceptions[0]
    return " ".join(str(failure).split())[:300] or type(failure).__name__
