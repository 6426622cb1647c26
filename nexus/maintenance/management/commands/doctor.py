"""`nexus doctor`: find what is wrong with the store and its home, and say what to do about it."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import NexusError
from nexus.core.progress import Bar
from nexus.maintenance import doctor
from nexus.maintenance.doctor import Diagnosis

HEALTHY, FINDINGS, UNEXAMINED = 0, 1, 2


class Command(NexusCommand):
    group = CommandGroup.STORE
    help = (
        "Examine the store and its home; with --fix, make the repairs that are safe. It looks at: "
        + ", ".join([*doctor.HOME_CHECKS, *doctor.ROW_CHECKS, *doctor.left_out()])
        + f".\nOn PostgreSQL it leaves out what only a SQLite file has: {', '.join(doctor.left_out())}.\n"
        "It changes nothing without --fix, and may run on a damaged store or beside a server. --fix repairs:\n"
        "modes of files, missing triggers and indexes, broken indexes, a log that is too long or lost, and\n"
        "leftovers of a killed backup. It deletes no message, event or handoff."
    )
    examples = """examples:
  nexus doctor
  nexus doctor --fix

exit codes: 0 healthy, or nothing but notes; 1 something was found (and, with --fix, is still there);
            2 the store could not be examined"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--fix", action="store_true", help="Make the repairs that are safe, and examine again.")
        parser.add_argument("--json", action="store_true", help="Answer one JSON object.")

    def run(self, **options: Any) -> None:
        config = CoreSettings.current()
        try:
            found = doctor.examine(config, Bar(self.stderr, "doctor"))
            done = {item: doctor.mend(item) for item in found if options["fix"] and item.finding.mend}
            left = doctor.examine(config, Bar(self.stderr, "doctor")) if done else found
        except NexusError as error:
            if not options["json"]:
                for item in doctor.examine_machine(config):
                    self.stdout.write("\n".join(_described(item)))
            self.stderr.write(f"[nexus] {error.code}: {error.message}")
            sys.exit(UNEXAMINED)
        healthy = all(item.finding.note for item in left)
        report = {
            "database": config.location,
            "healthy": healthy,
            "findings": [_entry(item, done.get(item)) for item in found],
            "left": len(left),
            "left_out": doctor.left_out() if config.database_url else [],
        }
        self.stdout.write(
            json.dumps(report) if options["json"] else "\n".join(self._lines(found, done, config, healthy))
        )
        sys.exit(HEALTHY if healthy else FINDINGS)

    def _lines(
        self, found: list[Diagnosis], done: dict[Diagnosis, str], config: CoreSettings, healthy: bool
    ) -> list[str]:
        lines = []
        for item in found:
            lines += _described(item, done.get(item))
        if config.database_url is not None:
            lines += [f"Left out, for an SQLite file alone has it: {', '.join(doctor.left_out())}."]
        checked = f"healthy ({len(doctor.check_names(config))} checks)" if healthy else "needs attention"
        return [*lines, f"{config.location}: {checked}."]


def _described(item: Diagnosis, done: str | None = None) -> list[str]:
    problem = f"{'note' if item.finding.note else 'FOUND'} ({item.check}): {item.finding.problem}"
    if done is not None:
        return [problem, f"  --fix: {done}."]
    mends = ["  `nexus doctor --fix` mends it."] if item.finding.mend else []
    return [problem, f"  {item.finding.advice}", *mends]


def _entry(item: Diagnosis, done: str | None) -> dict[str, Any]:
    finding = item.finding
    return {
        "check": item.check,
        "level": "note" if finding.note else "fault",
        "problem": finding.problem,
        "advice": finding.advice,
        "fixable": finding.mend is not None,
        "fixed": done,
    }
