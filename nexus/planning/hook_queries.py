"""What an agent owes of a plan, as SQL: `nexus hook` asks it without Django.

`nexus.planning.debts` tells of the same."""

from __future__ import annotations

from nexus.core.harness_events import HOOK_QUERIES, HookQuery

OWED = """
SELECT 'task ' || task_key FROM plan_tasks
WHERE closed_at IS NULL AND status = 'in_progress' AND held_by IS NULL AND coalesce(owner_agent_id, owner) = :agent
LIMIT 1000
"""

HOOK_QUERIES.append(HookQuery("plan_tasks", owed=OWED))
