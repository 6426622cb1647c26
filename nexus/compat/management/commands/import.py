"""`nexus import`: take the store of another system."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.compat.nexus3 import importing as nexus3
from nexus.compat.nexus3.source import Nexus3Home
from nexus.compat.okto.importing import OktoImport, counts, without_place
from nexus.compat.okto.source import NOTHING, opened, owner
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus.core.database.store import store
from nexus.core.operations.caller import LOCAL_OPERATOR
from nexus.core.operations.errors import invalid
from nexus.core.progress import Bar
from nexus.maintenance.store_users import in_use

BESIDE_A_HUB = 10_000  # rows, that are imported within the time that other writers wait


class Command(NexusCommand):
    group = CommandGroup.STORE
    help = (
        "Import the store of another system.\n\n"
        "okto: the home of okto-nexus 0.0.1 to 0.3.1, with workspaces, agents and their keys, permissions, channels,\n"
        "messages with deliveries, handoffs, artifacts, settings and the event log. It is only read. First you see\n"
        "what it holds, and what has no place here. All of it is imported, or nothing; a second import adds what is\n"
        "new.\n\n"
        "nexus3: the home of NEXUS3 1.x. Its saved sessions become ended agents of the pool, with their transcripts."
    )
    examples = """examples:
  nexus import okto ~/.okto_nexus --dry-run
  nexus import okto ~/.okto_nexus --yes --json
  nexus import nexus3 ~/.nexus3 --dry-run

exit codes: 0 imported, or shown; 1 nothing was imported; 130 interrupted, nothing was imported"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("system", choices=("okto", "nexus3"), help="The system.")
        parser.add_argument("path", metavar="DIR", help="Its home, or its database file.")
        parser.add_argument("--dry-run", action="store_true", help="Show what there is, and import nothing.")
        parser.add_argument("--yes", action="store_true", help="Import without asking.")
        parser.add_argument("--json", action="store_true", help="Answer one JSON object.")

    def run(self, **options: Any) -> None:
        path = Path(options["path"]).expanduser()
        if options["system"] == "nexus3":
            self._nexus3(path, options)
        else:
            self._okto(path, options)

    def _okto(self, path: Path, options: Mapping[str, Any]) -> None:
        with opened(path) as source:
            found, unmoved = counts(source), without_place(source)
            if not self._shown(found, unmoved, options):
                return
            if running := owner(source.home):
                raise invalid(f"{NOTHING}: {running} has it open, and what it writes meanwhile would be lost. Stop it.")
            if not self._agreed(options, may_wait=sum(found.values()) <= BESIDE_A_HUB):
                return
            store().prepare()
            importing = OktoImport(source, operator=LOCAL_OPERATOR, progress=Bar(self.stderr, "import"))
            importing.run()
        self._done(found, importing.new, importing.unmoved, options)

    def _nexus3(self, path: Path, options: Mapping[str, Any]) -> None:
        importing = nexus3.Nexus3Import(Nexus3Home(path), operator=LOCAL_OPERATOR, progress=Bar(self.stderr, "import"))
        if not self._shown(importing.found, importing.unmoved, options) or not self._agreed(options):
            return
        store().prepare()
        importing.run()
        self._done(importing.found, importing.new, importing.unmoved, options)

    def _shown(self, found: Mapping[str, int], unmoved: Mapping[str, int], options: Mapping[str, Any]) -> bool:
        """Show what there is, and return whether to go on."""
        if not options["json"]:
            self._print("It holds", found)
            self._print("Without a place here", _some(unmoved))
        elif options["dry_run"]:
            self.stdout.write(json.dumps({"found": found, "unmoved": _some(unmoved), "imported": {}}))
        return not options["dry_run"]

    def _agreed(self, options: Mapping[str, Any], *, may_wait: bool = False) -> bool:
        """Ask whether to import. Raises VALIDATION_ERROR if others use the store, unless they may wait meanwhile."""
        if not may_wait and (users := in_use(CoreSettings.current())):
            raise invalid(
                f"{NOTHING}: Nexus's store is in use by {users}, which could not write meanwhile. Stop that "
                "first, and start it again afterwards."
            )
        return bool(options["yes"]) or self.ask("Import it?")

    def _done(
        self,
        found: Mapping[str, int],
        imported: Mapping[str, int],
        unmoved: Mapping[str, int],
        options: Mapping[str, Any],
    ) -> None:
        if options["json"]:
            self.stdout.write(json.dumps({"found": found, "unmoved": _some(unmoved), "imported": dict(imported)}))
            return
        self._print("Imported", imported)
        self._print("Not imported", _some(unmoved))

    def _print(self, heading: str, numbers: Mapping[str, int]) -> None:
        if numbers:
            self.stdout.write(f"{heading}:")
            for what, count in numbers.items():
                words = what.replace("_", " ") if what.isidentifier() else what  # which may name a permission
                self.stdout.write(f"  {count:>9,}  {words}")


def _some(numbers: Mapping[str, int]) -> dict[str, int]:
    return {what: count for what, count in numbers.items() if count}
