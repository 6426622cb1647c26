"""`nexus replay`: write an exported history into an empty store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import Group, NexusCommand
from nexus.core.database.store import store
from nexus.core.operations.errors import invalid
from nexus.maintenance import history


class Command(NexusCommand):
    group = Group.STORE
    help = (
        "Load a file of `nexus export` into an empty store, all of it or nothing. All ids stay the\n"
        "same. Before it commits, it exports the loaded rows and compares them with the file, byte for byte. The file\n"
        "has no keys and no session secrets: issue new keys, and open new sessions."
    )
    examples = """examples:
  nexus replay history.ndjson --home /tmp/then
  nexus replay history.ndjson --home /tmp/then --json

exit codes: 0 loaded; 1 nothing was loaded"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="A file of `nexus export`.")
        parser.add_argument("--json", action="store_true", help="Answer one JSON object: the rows by kind.")

    def run(self, **options: Any) -> None:
        if not options["file"].is_file():
            raise invalid(f"There is no file {options['file']}.")
        store().prepare()
        played = history.replay(options["file"])
        counts = ", ".join(f"{kind} {count}" for kind, count in played.items())
        self.stdout.write(json.dumps({"played": played}) if options["json"] else f"Loaded: {counts}.")
