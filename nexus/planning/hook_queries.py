"""An agent's debts in plans, as SQL: `nexus hook` runs it without Django.

`nexus.planning.debts` finds the same.
"""

from __future__ import annotations

from nexus.core.harness_events import HOOK_QUERIES, HookQuery

OWED = """
SELECT 'task ' || task_key FROM plan_tasks
WHERE closed_at IS NULL AND status = 'in_progress' AND held_by IS NULL AND coalesce(owner_agent_id, owner) = :agent
LIMIT 1000
"""

HOOK_QUERIES.append(HookQuery("plan_tasks", owed=OWED))
