"""`nexus stop`: ends the hub of the home."""

from __future__ import annotations

from typing import Any

from nexus.core.cli import EXIT_CODES, CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus_site import background


class Command(NexusCommand):
    group = CommandGroup.HUB
    help = "End the hub. Agents on stdio go on without it; `nexus restart` starts it again."
    examples = f"examples:\n  nexus stop\n\n{EXIT_CODES}"

    def run(self, **options: Any) -> None:
        ended = background.stop(CoreSettings.current().home)
        self.stdout.write("The hub ended." if ended else "No hub runs.")
