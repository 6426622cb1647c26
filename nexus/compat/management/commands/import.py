"""`nexus import`: take the store of another system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.compat.okto.importing import Import, counts, without_place
from nexus.compat.okto.source import NOTHING, opened, owner
from nexus.core.cli import Group, NexusCommand, login
from nexus.core.config import CoreSettings
from nexus.core.database.store import store
from nexus.core.operations.errors import invalid
from nexus.core.progress import Bar
from nexus.maintenance.users import in_use


class Command(NexusCommand):
    group = Group.STORE
    help = (
        "Import the store of another system.\n\n"
        "okto: the home of okto-nexus 0.0.1 to 0.3.1, with workspaces, agents and their keys, permissions, channels,\n"
        "messages with deliveries, handoffs, artifacts, settings and the event log. It is only read. First you see\n"
        "what it holds, and what has no place here. All of it is imported, or nothing; a second import adds what is\n"
        "new."
    )
    examples = """examples:
  nexus import okto ~/.okto_nexus --dry-run
  nexus import okto ~/.okto_nexus --yes --json

exit codes: 0 imported, or shown; 1 nothing was imported; 130 interrupted, nothing was imported"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("system", choices=("okto",), help="The system.")
        parser.add_argument("path", metavar="DIR", help="Its home, or its database file.")
        parser.add_argument("--dry-run", action="store_true", help="Show what there is, and import nothing.")
        parser.add_argument("--yes", action="store_true", help="Import without asking.")
        parser.add_argument("--json", action="store_true", help="Answer one JSON object.")

    def run(self, **options: Any) -> None:
        with opened(Path(options["path"]).expanduser()) as source:
            found, unmoved = counts(source), without_place(source)
            if not options["json"]:
                self._print("It holds", found)
                self._print("Without a place here", unmoved)
            if options["dry_run"]:
                if options["json"]:
                    self.stdout.write(json.dumps({"found": found, "unmoved": unmoved, "imported": {}}))
                return
            if running := owner(source.home):
                raise invalid(f"{NOTHING}: {running} has it open, and what it writes meanwhile would be lost. Stop it.")
            if users := in_use(CoreSettings.current()):
                raise invalid(f"{NOTHING}: Nexus's store is in use by {users}. Stop that first.")
            if not options["yes"] and not self.ask("Import it?"):
                return
            store().prepare()
            importing = Import(source, operator=login(), progress=Bar(self.stderr, "import"))
            importing.run()
        imported, unmoved = dict(importing.new), {what: count for what, count in importing.unmoved.items() if count}
        if options["json"]:
            self.stdout.write(json.dumps({"found": found, "unmoved": unmoved, "imported": imported}))
            return
        self._print("Imported", imported)
        self._print("Not imported", unmoved)

    def _print(self, heading: str, numbers: dict[str, int]) -> None:
        if numbers:
            self.stdout.write(f"{heading}:")
            for what, count in numbers.items():
                self.stdout.write(f"  {count:>9,}  {what.replace('_', ' ')}")
