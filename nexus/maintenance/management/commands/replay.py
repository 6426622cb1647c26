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
        "Play a history that `nexus export` wrote into an empty store, all of it or nothing. Ids stay, those of\n"
        "events too, and a new export is the same file, byte for byte: that is checked before anything is committed.\n"
        "Agents come without keys, and sessions without secrets: open new ones."
    )
    examples = """examples:
  nexus replay history.ndjson --home /tmp/then
  nexus replay history.ndjson --home /tmp/then --json

exit codes: 0 played; 1 nothing was played"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="What `nexus export` wrote.")
        parser.add_argument("--json", action="store_true", help="Answer one JSON object: the rows by kind.")

    def run(self, **options: Any) -> None:
        if not options["file"].is_file():
            raise invalid(f"There is no file {options['file']}.")
        store().prepare()
        played = history.replay(options["file"])
        counts = ", ".join(f"{kind} {count}" for kind, count in played.items())
        self.stdout.write(json.dumps({"played": played}) if options["json"] else f"Played: {counts}.")
