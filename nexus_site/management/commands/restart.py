"""`nexus restart`: starts the hub of the home anew, as `nexus setup` started it."""

from __future__ import annotations

from typing import Any

from nexus.core.cli import EXIT_CODES, CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus.core.operations.errors import Code, NexusError
from nexus.hooks import setup_record
from nexus_site import background


class Command(NexusCommand):
    group = CommandGroup.HUB
    help = "Start again the hub of `nexus setup`: after an upgrade, or `nexus stop`."
    examples = f"examples:\n  nexus restart\n\n{EXIT_CODES}"

    def run(self, **options: Any) -> None:
        home = CoreSettings.current().home
        with setup_record.lock(home):
            hub = setup_record.hub_of(home)
            if not hub:
                why = "`nexus setup` started no hub here, so its options are unknown. Start it with `nexus serve`."
                raise NexusError(Code.CONFIG_ERROR, why)
            holder = background.restart(home, hub.get("arguments", ()), hub["manager"])
        self.stdout.write(f"The hub runs. Its pages are at {background.pages(home, holder)}")
