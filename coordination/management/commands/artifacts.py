"""`nexus artifacts`: what agents published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import EXIT_CODES, NOTHING, ago, positive, size
from nexus.core.verbs import Verb, VerbsCommand, named


class Command(VerbsCommand):
    help = "List what agents published, and show its content. Without a verb it lists them."
    examples = f"""examples:
  nexus artifacts --project . --limit 10
  nexus artifacts show art_… --content > notes.md

{EXIT_CODES}
  {NOTHING}  there is none"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List artifacts, newest first.", self.list, _add_filters,
                 ["nexus artifacts list", "nexus artifacts list --project . --json"], nothing="there is none"),
            Verb("show", "Show an artifact, with its content where that is inline.", self.show_one, _add_one,
                 ["nexus artifacts show art_…", "nexus artifacts show art_… --content > notes.md"]),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Every artifact, one a row."""
        data = self.call("artifact_list", project_root=options["project_root"], limit=options["limit"])
        rows = data["artifacts"]
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["artifact", "type", "name", "size", "made", "project"],
                [
                    (
                        row["artifact_id"],
                        row["artifact_type"],
                        row["name"] or row["path"],
                        size(row["size_bytes"]),
                        ago(row["created_at"]),
                        row["project_root"],
                    )
                    for row in rows
                ],
            )
        return 0 if rows else NOTHING

    def show_one(self, options: Mapping[str, Any]) -> int:
        """One artifact, or its content alone."""
        data = self.call("artifact_read", artifact_id=options["artifact"])
        if options["content"] and not options["json"]:
            self.stdout.write(data.get("content", data.get("path")), ending="")
            return 0
        return self.show(options, data)


def _add_filters(parser: CommandParser) -> None:
    parser.add_argument("--project", dest="project_root", metavar="DIR", help="Only this project's.")
    parser.add_argument("--limit", type=positive, default=100, help="Artifacts at most. [100]")


def _add_one(parser: CommandParser) -> None:
    named("artifact", "The artifact_id.")(parser)
    parser.add_argument("--content", action="store_true", help="Print the content alone, as it is.")
