"""`nexus wait`: its help. A call that waits never comes here: `nexus.hooks.waking` answers it before Django starts."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup, NexusCommand
from nexus.hooks import harness


class Command(NexusCommand):
    group = CommandGroup.CLIENTS
    help = (
        "Wait until something comes for an agent itself, print it, and end.\n"
        "What counts: a message or a handoff to this agent, and a message in a topic that names it; each once,\n"
        "whether this command or the client's hook tells it. Nothing is taken: the agent pulls its mail. An agent\n"
        "may run this as a background task, so that its client goes on when it ends."
    )
    examples = (
        "examples:\n"
        "  nexus wait --agent builder                 until something comes\n"
        "  nexus wait --agent builder --seconds 600\n"
        "\n"
        "A second one for the same agent, project and --session ends the first.\n"
        "exit codes: 0 something came; 3 nothing came in time; 1 refused; 130 Ctrl-C\n"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        harness.add_waiting_options(parser)

    def run(self, **options: Any) -> None:
        raise AssertionError("nexus_site.launch answers it")
