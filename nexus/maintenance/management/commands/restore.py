"""`nexus restore`: replace the store with a backup."""

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
        "Check a backup and replace the store with it, all of it or nothing. The former store is kept beside\n"
        "it as nexus.db.replaced-<time>. The next start migrates an older backup; a newer or too old one is refused.\n"
        "A store on PostgreSQL is restored by pg_restore."
    )
    examples = """examples:
  nexus restore ~/.nexus/backups/nexus-20260131T120000000000Z.db
  nexus restore before-upgrade.db --json

exit codes: 0 restored; 1 nothing was changed"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("backup", type=Path, help="A file that `nexus backup` wrote, or any whole store.")
        parser.add_argument("--json", action="store_true", help="Answer one JSON object.")

    def run(self, **options: Any) -> None:
        config = CoreSettings.current()
        database = backup.file_of(config)
        done = backup.restore(
            options["backup"].absolute(),
            database,
            home=config.home,
            progress=Bar(self.stderr, "restore"),
        )
        replaced = str(done.replaced) if done.replaced else None
        if options["json"]:
            answer = {
                "database": str(database),
                "rows": done.rows,
                "replaced": replaced,
            }
            self.stdout.write(json.dumps(answer))
            return
        self.stdout.write(f"{database}: {sum(done.rows.values())} rows restored from {options['backup']}.")
        if replaced:
            self.stdout.write(f"The former store is {replaced}; delete it when you no longer need it.")
