"""`nexus hook`: the command that a coding agent's harness calls at its turns, and its installation."""

from __future__ import annotations

import difflib
from typing import Any

from django.core.management.base import CommandParser

from coordination.models import Agent
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.coding_clients import HOOKED, PLUGGED
from nexus.core.config import CoreSettings
from nexus.core.database.store import is_made
from nexus.core.operations.errors import invalid
from nexus.hooks import client_entries, client_files, harness, signal_files
from nexus.hooks.client_commands import (
    EDITS,
    add_setup_options,
    carry_out,
    program,
    project,
    remind_of_password,
    settings_flags,
)
from nexus.hooks.client_entries import GATE
from nexus.hooks.harness import PLANNING


class Command(NexusCommand):
    """The installation of hooks. Calls by a harness never come here: `nexus.hooks.entry` answers them before Django
    starts."""

    group = CommandGroup.CLIENTS
    help = (
        "Notify an agent of its mail during its turns, and install this hook in its client.\n"
        "A coding client calls it at SessionStart, UserPromptSubmit, PostToolUse and Stop, with JSON on stdin.\n"
        "The hook opens or refreshes the agent's session, and prints unread mail and available handoffs in the form\n"
        "that the client shows to its agent. It prints nothing if nothing waits, and never fails."
    )
    examples = (
        "examples:\n"
        "  nexus hook install --client claude-code --agent builder\n"
        "  nexus hook install --client claude-code --planning         with a plan: at every point of a session\n"
        "  nexus hook uninstall --client claude-code\n"
        "  nexus hook --client text --agent builder        what any other client can call\n"
        "  nexus hook signal-file --agent builder          a file whose time changes when something arrives\n"
        "\n"
        "exit codes: 0 done, and always when a client calls the hook; 1 refused; stderr has the code and what to do\n"
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "action",
            choices=("install", "uninstall", "signal-file"),
            help="write the client's hooks, remove them, or make an agent's signal file and print its path; "
            "without an action: run as the hook",
        )
        harness.add_options(parser)
        add_setup_options(parser)

    def _warn_of_unknown(self, agent_id: str) -> None:
        """Warn about an unknown agent now, because the hook's first call will silently register even a mistyped
        name."""
        if is_made():
            known = list(Agent.objects.order_by("agent_id").values_list("agent_id", flat=True))
            if agent_id not in known:
                near = difflib.get_close_matches(agent_id, known, n=1)
                hint = f" Did you mean {near[0]!r}?" if near else ""
                self.stderr.write(f"There is no agent {agent_id!r} yet; the hook's first call registers it.{hint}")

    def run(self, **options: Any) -> None:
        client, agent_id = options["client"], options["agent_id"]
        if agent_id and options["action"] != "uninstall":
            self._warn_of_unknown(agent_id)
        if options["action"] == "signal-file":
            if not agent_id:
                raise invalid("Pass --agent: the agent whose signals you want.", field="agent_id")
            self.stdout.write(str(signal_files.arm(CoreSettings.current().home, agent_id)))
            return
        if client not in HOOKED:
            known, plugged = ", ".join(HOOKED), ", ".join(PLUGGED)
            raise invalid(f"--client must be one of {known}; for {plugged} use `nexus setup`.", field="client")
        if options["action"] == "uninstall":
            edit = client_files.drop_hooks(client)
        else:
            given = [*(["--agent-id", agent_id] if agent_id else []), *([PLANNING] if options["planning"] else [])]
            edit = client_files.put_hooks(
                client, client_entries.hook_command(program(), client, [*given, *settings_flags(GATE, EDITS)])
            )
        path = HOOKED[client].file(options["scope"])
        carry_out(
            self, client_files.plan(client_entries.locate(path, project(options)), "json", edit), yes=options["yes"]
        )
        if options["action"] == "install":
            remind_of_password(self)
