"""`nexus attach`: its help. A call with a client's command never comes here: `nexus.hooks.attaching` answers it before
Django starts."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.operations.errors import invalid
from nexus.hooks import attaching


class Command(NexusCommand):
    group = CommandGroup.CLIENTS
    help = (
        "Start a client in this pane of tmux or kitty, and wake its agent by a line typed into it.\n"
        "When something comes for the agent itself (see `nexus wait`), Nexus types one fixed line and presses Enter:\n"
        "only while the client is in the foreground, its screen is at rest and its input line is empty. It ends with\n"
        f"the client. For {', '.join(attaching.EMPTY_LINES)}: of other programs Nexus cannot tell whether the\n"
        "line is empty."
    )
    examples = (
        "examples:\n"
        "  nexus attach --agent builder -- gemini\n"
        "  nexus attach --agent builder -- claude --continue        for a session that you had without it\n"
        "\n"
        "exit codes: the client's; 1 refused, and the client was not started\n"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--agent", metavar="ID", help="The agent that works in the client.")
        parser.add_argument("--project", metavar="DIR", help="The project's directory. [the current one]")
        parser.add_argument("command", nargs="*", help="The client's command, behind `--`.")

    def run(self, **options: Any) -> None:
        raise invalid(
            "Put the client's command behind --, as in: nexus attach --agent builder -- gemini.", field="command"
        )
