"""What this app does when something happens in a coding harness; in projects that keep a plan, and nowhere else."""

from __future__ import annotations

import os

from nexus.core.harness_events import HANDLERS, NOTHING, Happening, HarnessEvent, Said


def handle(what: Happening) -> Said:
    """Act on the project's `.nexus`, where it has one or the hook was installed to make it. Raises NexusError."""
    place = f"{what.root}/.nexus"
    if not (what.wanted or os.path.isdir(f"{place}/state")) or place == str(what.settings.home):  # noqa: PTH112  # a tenth of pathlib's time
        return NOTHING  # the last is a user's own home, where Nexus keeps its store
    if what.event is HarnessEvent.PRE_TOOL_USE and not (what.agent_type or what.settings.planning_gate_edits):
        return NOTHING  # most calls of all, and the main agent may do anything
    from nexus.planning import turns

    return turns.handle(what)


HANDLERS.append(handle)
