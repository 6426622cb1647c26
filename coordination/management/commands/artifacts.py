"""`nexus artifacts`: the artifacts that agents published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import size
from nexus.core.verbs import Verb, VerbsCommand, time


class Command(VerbsCommand):
    help = "List artifacts, and show their content."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                operation="artifact_list",
                options=["project_root", "limit"],
                rows="artifacts",
                columns={
                    "artifact": "artifact_id",
                    "type": "artifact_type",
                    "name": lambda row: row["name"] or row["path"],
                    "size": lambda row: size(row["size_bytes"]),
                    "made": time("created_at"),
                    "project": "project_root",
                },
                examples=["nexus artifacts list --project . --limit 10", "nexus artifacts --json"],
            ),
            Verb(
                "show",
                "Show an artifact, with its content if the store has it.",
                self.show_one,
                _add_content,
                operation="artifact_read",
                words=["artifact_id"],
                examples=["nexus artifacts show art_…", "nexus artifacts show art_… --content > notes.md"],
            ),
        )

    def show_one(self, options: Mapping[str, Any]) -> int:
        """Show one artifact, or only its content."""
        data = self.answer(options)
        if options["content"] and not options["json"]:
            self.stdout.write(data.get("content", data.get("path")), ending="")
            return 0
        return self.present(options, data)


def _add_content(parser: CommandParser) -> None:
    parser.add_argument("--content", action="store_true", help="Print only the content, unchanged.")
