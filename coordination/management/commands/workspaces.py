"""`nexus workspaces`: the projects of this hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from django.core.management.base import CommandParser

from coordination.models import Workspace
from coordination.rows import workspace_row
from coordination.services import workspaces
from nexus.core.cli import EXIT_CODES, NOTHING, add_page, ago
from nexus.core.operations.errors import not_found
from nexus.core.verbs import Verb, VerbsCommand

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
            Verb("list", "List the workspaces.", self.list, partial(add_page, what="Workspaces"),
                 ["nexus workspaces list --json"], nothing="there is none"),
            Verb("show", "Show the workspace of a project that is known here.", self.show_one, _add_place,
                 ["nexus workspaces show", "nexus workspaces show ~/shop", "nexus workspaces show e082226f"]),
        )  # fmt: skip

    def list(self, options: Mapping[str, Any]) -> int:
        """Workspaces, one a row."""
        data = self.call("workspace_list", limit=options["limit"], cursor=options["cursor"])
        rows = data["workspaces"]
        if options["json"]:
            self.print_json(data)
        else:
            self.print_table(
                ["workspace", "name", "last seen", "project"],
                [
                    (row["workspace_id"][:12], row["display_name"], ago(row["last_seen_at"]), row["root_realpath"])
                    for row in rows
                ],
            )
            self.tell_more(data)
        return 0 if rows else NOTHING

    def show_one(self, options: Mapping[str, Any]) -> int:
        """The workspace of a directory, or the one whose id begins so."""
        place = options["place"]
        if len(place) >= SHORTEST:
            begin_so = Workspace.objects.filter(pk__startswith=place)[:2]
            if len(begin_so) == 1:
                return self.show(options, dict(workspace_row(begin_so[0])))
        found = Workspace.objects.filter(pk=workspaces.locate(place).workspace_id).first()
        if found is None:
            raise not_found("workspace", place)
        return self.show(options, dict(workspace_row(found)))


def _add_place(parser: CommandParser) -> None:
    parser.add_argument("place", nargs="?", default=".", metavar="PLACE",
                        help="The project's directory, or the first digits of the workspace_id. [.]")  # fmt: skip
