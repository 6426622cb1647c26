"""What `nexus hook` asks of this app, with the standard library alone: before an edit, an agent learns that another one
holds the file, and which requests for its reservations it has not answered."""

from __future__ import annotations

import os

from nexus.core.coding_clients import TOOLS
from nexus.core.harness_events import (
    HANDLERS,
    HOOK_QUERIES,
    NOTHING,
    HarnessEvent,
    HookAnswer,
    HookEvent,
    HookQuery,
)

STARTS = (HarnessEvent.SESSION_START, HarnessEvent.CONTEXT_COMPACT)
ENVIRONMENT = "CLAUDE_ENV_FILE"  # the file from which Claude Code sets its shell commands' environment, at these events


def handle(what: HookEvent) -> HookAnswer:
    """Warn of an edit of what another agent holds, or refuse it; refuse a commit of it that git's hooks would not see.
    Raises Unreadable."""
    if what.event in STARTS:
        if file := os.environ.get(ENVIRONMENT):
            import shlex

            with open(file, "a") as exports:  # noqa: PTH123
                exports.write(
                    f"export NEXUS_AGENT_ID={shlex.quote(what.caller)}\n"
                )  # so that git's hooks know the agent
        from nexus.hooks import client_processes  # most events do not need it

        client_processes.note(what.settings.home, os.getpid(), what.caller)  # fails in a read-only home
    if what.event is not HarnessEvent.PRE_TOOL_USE:
        return NOTHING
    if what.command and what.client in TOOLS and what.tool == TOOLS[what.client].shell:
        from nexus.reservations.guard import shell

        if text := shell.refusal(what):
            return HookAnswer(refusal=text)
    if what.settings.guard_edits == "off" or not what.files or not what.edits:
        return NOTHING
    from nexus.reservations.guard import edits

    text = edits.warning(what)
    if what.settings.guard_edits == "stop":
        return HookAnswer(refusal=text)
    return HookAnswer(context=text) if what.heard else HookAnswer(warning=text)


# `nexus.reservations.attention.reservation_debts` finds which of these requests wait.
OWED = """
SELECT 'question ' || reservation_id FROM file_reservations
WHERE agent_id = :agent AND released_at IS NULL AND expires_at >= :now AND asked_by <> '[]'
LIMIT 1000
"""

HANDLERS.append(handle)
HOOK_QUERIES.append(HookQuery("file_reservations", owed=OWED))
