"""`nexus workspaces`: the projects of this hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination.services import workspaces
from core.cli import EXIT_CODES, NOTHING, ago
from core.operations.errors import not_found
from core.verbs import Verb, VerbsCommand

SHORTEST = 6  # digits of a workspace_id that may stand for the whole


class Command(VerbsCommand):
    help = "List the projects that agents work in, and tell a project's workspace_id. Without a verb it lists them."
    examples = f"""examples:
  nexus workspaces
  nexus workspaces show . --json | jq -r .workspace_id

{EXIT_CODES}
  {NOTHING}  there is none"""

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb("list", "List the workspaces.", self.list, examples=["nexus workspaces list --json"],
                 nothing="there is none"),
            Verb("show", "Show the workspace of a project that is known here.", self.show_one, _add_place,
                 ["nexus workspaces show", "nexus workspaces show ~/shop", "nexus workspaces show e082226f"]),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Every workspace, one a row."""
        rows = self.call("workspace_list")["workspaces"]
        if options["json"]:
            self.print_json({"workspaces": rows})
        else:
            self.print_table(
                ["workspace", "name", "last seen", "project"],
                [
                    (row["workspace_id"][:12], row["display_name"], ago(row["last_seen_at"]), row["root_realpath"])
                    for row in rows
                ],
            )
        return 0 if rows else NOTHING

    def show_one(self, options: Mapping[str, Any]) -> int:
        """The workspace of a directory, or the one whose id begins so."""
        place = options["place"]
        rows = self.call("workspace_list")["workspaces"]
        begin_so = [row for row in rows if len(place) >= SHORTEST and row["workspace_id"].startswith(place)]
        if len(begin_so) == 1:
            return self.show(options, begin_so[0])
        workspace_id = workspaces.locate(place).workspace_id
        for row in rows:
            if row["workspace_id"] == workspace_id:
                return self.show(options, row)
        raise not_found("workspace", place)


def _add_place(parser: CommandParser) -> None:
    parser.add_argument("place", nargs="?", default=".", metavar="PLACE",
                        help="The project's directory, or the first digits of the workspace_id. [.]")  # fmt: skip
