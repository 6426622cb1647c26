"""What `nexus hook` asks of this app, without Django, as SQL: people's answers that an agent has not heard.

`nexus.control.agents.questions` finds the same.
"""

from __future__ import annotations

from nexus.core.harness_events import HOOK_QUERIES, HookQuery

ANSWERS = """
SELECT question_id FROM pool_questions
WHERE agent_id = :agent AND pool_agent_id IS NULL AND status IN ('allowed', 'refused', 'answered')
  AND ended_at > datetime(:now, '-1 day') AND heard_at IS NULL
LIMIT 1000
"""

HOOK_QUERIES.append(HookQuery("pool_questions_unheard", ANSWERS, personal=ANSWERS))
