"""`nexus prune`: delete rows past their retention window, from a shell or a cron job."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, CommandGroup, OperatorCommand, size
from nexus.core.config import flag
from nexus.core.operations.replies import Data
from nexus.maintenance.retention import rules

BATCHES_A_CALL = 20  # per rule, between two lines of progress


class Command(OperatorCommand):
    group = CommandGroup.STORE
    help = (
        "Delete events, acknowledged deliveries and closed sessions past their retention windows.\n"
        "The whole store is pruned, in short transactions beside running agents, the oldest events first. It never\n"
        "deletes unfinished work, messages, handoffs, tasks, channels, agents, workspaces or artifacts."
    )
    examples = f"""examples:
  nexus prune --dry-run
  nexus prune --vacuum
  nexus prune --events-keep-days 7 --json

{EXIT_CODES}"""

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--project",
            dest="project_root",
            metavar="DIR",
            help="Refuse if this is not a directory. The whole store is pruned in any case.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only count; delete nothing, and ignore --vacuum.")
        parser.add_argument("--vacuum", action="store_true", help="Then shrink the file on disk.")
        parser.add_argument("--yes", action="store_true", help="Do not ask. (Without a terminal it never asks.)")
        for name, rule in rules().items():
            window = f"{rule.keep} days" if isinstance(rule.keep, int) else rule.keep
            parser.add_argument(flag(f"{name}_keep_days"), type=int, metavar="N", help=f"Instead of {window}.")

    def act(self, options: Mapping[str, Any]) -> int:
        deleted = dict.fromkeys(rules(), 0)
        windows = {f"{name}_keep_days": options[f"{name}_keep_days"] for name in rules()}
        if not (options["yes"] or options["dry_run"]) and sys.stdin.isatty():
            self.report(self.call("retention_prune", project_root=options["project_root"], dry_run=True, **windows))
            if not self.ask("Delete these for good?"):
                self.stdout.write("Nothing was changed.")
                return 0
        while True:
            data = self.call(
                "retention_prune",
                project_root=options["project_root"],
                dry_run=options["dry_run"],
                vacuum=options["vacuum"],
                max_batches=BATCHES_A_CALL,
                **windows,
            )
            for name, rule in data["lanes"].items():
                deleted[name] += rule["deleted"]
            if options["dry_run"] or not data["more"]:
                break
            left = sum(rule["found"] - rule["deleted"] for rule in data["lanes"].values())
            self.stderr.write(f"deleted {sum(deleted.values())}, {left} to go")
        for name, rule in data["lanes"].items():
            rule["found"] += deleted[name] - rule["deleted"]
            rule["deleted"] = deleted[name]
        if options["json"]:
            self.print_json(data)
        else:
            self.report(data)
        return 0

    def report(self, data: Data) -> None:
        """Print the outcome."""
        done = "would delete" if data["dry_run"] else "deleted"
        self.print_table(
            ["rows", "window", "older than", done],
            [
                (
                    name.replace("_", " "),
                    f"{rule['keep_days']} d",
                    rule["before"][:19].replace("T", " "),
                    rule["found"] if data["dry_run"] else rule["deleted"],
                )
                for name, rule in data["lanes"].items()
            ],
        )
        if compacted := data.get("vacuum"):
            self.stdout.write(f"\nThe store: {size(compacted['bytes_before'])} → {size(compacted['bytes_after'])}")
            if problem := compacted.get("problem"):
                self.stdout.write(f"It was not shrunk: {problem}")
