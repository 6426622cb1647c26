"""`nexus backup`: a checked copy of the store, taken while it is in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus.core.progress import Bar
from nexus.maintenance import backup


class Command(NexusCommand):
    group = CommandGroup.STORE
    help = (
        "Copy the state of the store at one moment, while agents continue to write. The copy is checked (integrity,\n"
        "references, row counts, schema) before it gets its name; it never overwrites a file.\n"
        "It contains only the store, not the home's signing key or rendered shared.md files.\n"
        "A store on PostgreSQL is backed up by pg_dump."
    )
    examples = """examples:
  nexus backup                        into backups/ of the home, named by the time
  nexus backup /mnt/usb               a directory: likewise named by the time
  nexus backup before-upgrade.db --json

exit codes: 0 written and checked; 1 nothing was written"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "destination", nargs="?", type=Path, help="File or directory. Default: backups/ in the home."
        )
        parser.add_argument("--json", action="store_true", help="Answer one JSON object.")

    def run(self, **options: Any) -> None:
        database = backup.file_of(CoreSettings.current())
        made = backup.back_up(database, _destination(options["destination"]), Bar(self.stderr, "backup"))
        if options["json"]:
            answer = {"path": str(made.path), "size_bytes": made.size_bytes, "rows": made.rows, "checked": True}
            self.stdout.write(json.dumps(answer))
            return
        rows = sum(made.rows.values())
        self.stdout.write(f"{made.path}: {made.size_bytes} bytes, {rows} rows in {len(made.rows)} tables, checked.")


def _destination(destination: Path | None) -> Path:
    if destination is None:
        destination = CoreSettings.current().home / "backups"
        if CoreSettings.current().home.is_dir():
            destination.mkdir(mode=0o700, exist_ok=True)
    return destination / f"nexus-{backup.stamp()}.db" if destination.is_dir() else destination.absolute()
