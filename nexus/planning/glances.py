"""What an agent owes of a plan, as SQL: `nexus hook` asks it without Django.

`nexus.planning.debts` tells of the same."""

from nexus.core.glances import GLANCES, Glance

OWED = """
SELECT 'task ' || task_key FROM plan_tasks
WHERE closed_at IS NULL AND status = 'in_progress' AND held_by IS NULL AND coalesce(owner_agent_id, owner) = :agent
LIMIT 1000
"""

GLANCES.append(Glance("plan_tasks", owed=OWED))
