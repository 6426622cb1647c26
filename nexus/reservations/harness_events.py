"""What this app does when something happens in a coding harness: an agent learns, before it edits a file, that another
one holds it."""

from __future__ import annotations

import os

from nexus.core.harness_events import HANDLERS, NOTHING, Happening, HarnessEvent, Said, edits_files

STARTS = (HarnessEvent.SESSION_START, HarnessEvent.CONTEXT_COMPACT)
ENVIRONMENT = "CLAUDE_ENV_FILE"  # where Claude Code reads, at these, what its shell commands find in the environment


def handle(what: Happening) -> Said:
    """Tell of an edit of what another agent holds, or refuse it. Raises Unreadable."""
    if what.event in STARTS and (file := os.environ.get(ENVIRONMENT)):
        import shlex  # most calls are of other points

        with open(file, "a") as exports:  # noqa: PTH123
            exports.write(f"export NEXUS_AGENT_ID={shlex.quote(what.caller)}\n")  # so that git's hooks know it
    if what.event is not HarnessEvent.PRE_TOOL_USE or what.settings.guard_edits == "off":
        return NOTHING
    if not what.files or not edits_files(what.client, what.tool):
        return NOTHING
    from nexus.reservations.guard import edits

    text = edits.warning(what)
    if what.settings.guard_edits == "stop":
        return Said(refusal=text)
    return Said(context=text) if what.heard else Said(warning=text)


HANDLERS.append(handle)
