"""`nexus export`: a workspace's history as NDJSON."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from coordination.services.workspaces import locate
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.database.store import store
from nexus.maintenance import history, store_file


class Command(NexusCommand):
    group = CommandGroup.STORE
    help = (
        "Write one workspace's history as NDJSON. That is the workspace, the agents concerned, sessions, tasks,\n"
        "channels, messages, deliveries, handoffs, artifacts and events, at one moment, in a fixed order.\n"
        "It contains no keys and no session secrets."
    )
    examples = """examples:
  nexus export --project . > history.ndjson
  nexus export --project . --output history.ndjson
  nexus export --workspace-id 29ccbc… | jq -r 'select(.kind == "message").row.subject'

exit codes: 0 written; 1 nothing was written to --output"""

    def add_arguments(self, parser: CommandParser) -> None:
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--project", dest="project_root", metavar="DIR", help="The project's directory.")
        which.add_argument(
            "--workspace-id", help="The workspace's id, for example if its directory is not on this machine."
        )
        parser.add_argument(
            "--output", type=Path, metavar="FILE", help="A new file, for its owner only. Default: stdout."
        )

    def run(self, **options: Any) -> None:
        store().prepare()
        workspace_id = options["workspace_id"] or locate(options["project_root"]).workspace_id
        with store().snapshot(), closing(history.export(workspace_id)) as lines:
            if options["output"] is None:
                for line in lines:
                    self.stdout.write(line)
                return
            output: Path = options["output"].absolute()
            with (
                store_file.explained(f"Nothing was written to {output}."),
                store_file.partial_file(output) as partial,
            ):
                with partial.open("w", encoding="utf-8", newline="\n") as file:
                    file.writelines(f"{line}\n" for line in lines)
                store_file.publish(partial, output)
