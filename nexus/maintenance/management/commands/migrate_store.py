"""`nexus migrate-store`: copy the whole store into another database, in either direction."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import CoreSettings, parse
from nexus.core.progress import Bar
from nexus.maintenance.transfer import transfer


class Command(NexusCommand):
    group = CommandGroup.STORE
    help = (
        "Copy the whole store from SQLite to PostgreSQL, or back. Every row is copied unchanged, with ids, keys and\n"
        "operators' accounts. Then every table's rows are counted and every workspace's export is compared byte for\n"
        "byte, before the copy is valid. The target must be empty, and gets all or nothing. The store is only read\n"
        "and stays where it is; nobody else may use it meanwhile."
    )
    examples = """examples:
  nexus migrate-store --to postgresql://nexus:secret@db.example.org/nexus
  nexus migrate-store --to "$NEXUS_TARGET_URL" --json
  nexus migrate-store --database-url postgresql://nexus@db.example.org/nexus --to ~/.nexus/nexus.db

exit codes: 0 copied and compared; 1 nothing was written; 130 interrupted, nothing was written"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--to", required=True, metavar="URL|FILE", help="An empty PostgreSQL database, or a new SQLite file."
        )
        parser.add_argument("--json", action="store_true", help="Answer one JSON object.")

    def run(self, **options: Any) -> None:
        current, to = CoreSettings.current(), options["to"]
        if "://" in to:
            target = current.replaced(database_url=parse("database_url", to, "--to"), db_path=None)
        else:
            target = current.replaced(database_url=None, db_path=parse("db_path", to, "--to"))
        rows = transfer(target, Bar(self.stderr, "migrate-store"))
        if options["json"]:
            answer = {"from": current.location, "to": target.location, "rows": rows, "compared": True}
            self.stdout.write(json.dumps(answer))
            return
        setting = "NEXUS_DB_PATH" if target.database_url is None else "NEXUS_DATABASE_URL"
        self.stdout.write(
            f"{target.location}: {sum(rows.values())} rows of {len(rows)} tables, compared with {current.location}.\n"
            f"Set {setting} to the new store for the hub and for every agent, then start them. The former store is as "
            "it was; keep it until you are content."
        )
