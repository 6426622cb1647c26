"""`nexus workspaces`: the projects of this hub."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandParser

from coordination.models import Workspace
from coordination.rows import workspace_row
from coordination.services import workspaces
from nexus.core.operations.errors import not_found
from nexus.core.verbs import Option, Verb, VerbsCommand, time

SHORTEST = 6  # digits of a workspace_id that may stand for the whole id


class Command(VerbsCommand):
    help = "List the projects that agents work in, and let one follow its renamed directory."

    def verbs(self) -> Sequence[Verb]:
        return (
            Verb(
                "list",
                "List the workspaces.",
                operation="workspace_list",
                options=["limit", "cursor"],
                rows="workspaces",
                columns={
                    "workspace": lambda row: row["workspace_id"][:12],
                    "name": "display_name",
                    "last seen": time("last_seen_at"),
                    "project": "root_realpath",
                },
                examples=["nexus workspaces list --json"],
            ),
            Verb(
                "show",
                "Show the workspace of a project that is in the store.",
                self.show_one,
                _add_workspace,
                ["nexus workspaces show", "nexus workspaces show ~/shop", "nexus workspaces show e082226f"],
            ),
            Verb(
                "move",
                operation="workspace_move",
                words=[
                    Option("old_root", "OLD", "The directory's path before it was renamed.", read=_absolute),
                    Option("project_root", "NEW", "Its path now.", read=_absolute),
                ],
                rows="workspaces",
                columns={
                    "workspace": lambda row: row["workspace_id"][:12],
                    "from": "old_root",
                    "to": "root_realpath",
                    "left at the old path": lambda row: ", ".join(row["left"]),
                },
                examples=["nexus workspaces move ~/shop ~/store"],
            ),
        )

    def show_one(self, options: Mapping[str, Any]) -> int:
        """Show the workspace of a directory, or the one whose id begins with the given digits."""
        named = options["workspace"]
        if len(named) >= SHORTEST:
            begin_so = Workspace.objects.filter(pk__startswith=named)[:2]
            if len(begin_so) == 1:
                return self.show(options, dict(workspace_row(begin_so[0])))
        found = Workspace.objects.filter(pk=workspaces.locate(named).workspace_id).first()
        if found is None:
            raise not_found("workspace", named)
        return self.show(options, dict(workspace_row(found)))


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100  # what was renamed is no path any more


def _add_workspace(parser: CommandParser) -> None:
    help = "The project's directory, or the first digits of the workspace_id. [.]"
    parser.add_argument("workspace", nargs="?", default=".", metavar="WORKSPACE", help=help)
