"""`nexus run-worker`: one of the processes that share a hub's port, started by the server."""

from __future__ import annotations

import os
import stat
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from nexus.core import waiting
from nexus.core.cli import Group, NexusCommand
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError


class Command(NexusCommand):
    group = Group.HUB
    help = "Serve the agents whose keys belong to this process of a hub. A server with --workers starts this by itself."
    examples = """examples:
  nexus serve --workers 4

exit codes: 0 the server ended, or asked it to; 1 it could not start; stderr has the code"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--number", type=int, required=True, help="The number of this worker, from 1 on.")
        parser.add_argument(
            "--workers", type=int, required=True, help="How many workers there are, including the server."
        )
        parser.add_argument("--hosts", required=True, help="The names under which the server is called.")
        parser.add_argument("--trusts-local", action="store_true", help="Whether the server is bound to loopback.")

    def run(self, **options: Any) -> None:
        """Serve until the server ends this process, or is gone. Raises CONFIG_ERROR where no server started it."""
        if not stat.S_ISSOCK(os.fstat(0).st_mode):
            raise NexusError(Code.CONFIG_ERROR, "The server starts this by itself: nexus serve --workers N.")
        store().prepare()
        settings.ALLOWED_HOSTS = options["hosts"].split(",")
        settings.NEXUS_IS_WORKER = True
        settings.NEXUS_TRUSTS_LOCAL = options["trusts_local"]
        from nexus_site.serving.daphne import HubServer  # isort:skip  # before anything else of Twisted
        from nexus_site.asgi import application
        from nexus_site.serving.workers import READY, Member

        def ready() -> None:
            sys.stdout.buffer.write(READY)
            sys.stdout.flush()

        HubServer(application, [], ready, share=Member(options["number"], options["workers"])).run()
        waiting.WRITERS.shutdown()  # waits for the writes under way
        os._exit(0)  # as in `serve`
