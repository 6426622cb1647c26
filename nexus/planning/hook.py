"""This app's part of `nexus hook`, without Django: an agent's debts in plans as SQL, as `selectors` finds them,
and the reaction to events of a coding client, only in projects with a plan.
"""

from __future__ import annotations

import os

from nexus.core.harness_events import HANDLERS, HOOK_QUERIES, NOTHING, HarnessEvent, HookAnswer, HookEvent, HookQuery

OWED = """
SELECT 'task ' || task_key FROM plan_tasks
WHERE closed_at IS NULL AND status = 'in_progress' AND held_by IS NULL
  AND submitted_at IS NULL AND coalesce(owner_agent_id, owner) = :agent
UNION ALL
SELECT 'task_verdict ' || task_key FROM plan_tasks
WHERE closed_at IS NULL AND status = 'in_progress' AND submitted_at IS NOT NULL
  AND (verifier = 'agent:' || :agent OR (verifier = 'creator' AND created_by = :agent))
  AND :agent NOT IN (coalesce(submitted_by, ''), coalesce(owner_agent_id, ''), coalesce(owner, ''))
LIMIT 1000
"""


HOOK_QUERIES.append(HookQuery("plan_tasks", owed=OWED))


def handle(what: HookEvent) -> HookAnswer:
    """Handle an event in a project with a `.nexus`, or where the hook was installed to create it. Raises NexusError."""
    nexus_dir = f"{what.root}/.nexus"
    if not (what.wanted or os.path.isdir(f"{nexus_dir}/state")) or nexus_dir == str(what.settings.home):  # noqa: PTH112  # a tenth of pathlib's time
        return NOTHING  # a user's own home has a .nexus, too, with the store
    if what.event is HarnessEvent.PRE_TOOL_USE and not (what.agent_type or what.settings.planning_gate_edits):
        return NOTHING  # the most frequent case, and the main agent may use any tool
    from nexus.planning import hook_actions

    return hook_actions.handle(what)


HANDLERS.append(handle)
