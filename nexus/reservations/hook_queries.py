"""Requests to an agent for its reservations, as SQL: `nexus hook` runs it without Django.

`nexus.reservations.debts` finds which of them wait.
"""

from __future__ import annotations

from nexus.core.harness_events import HOOK_QUERIES, HookQuery

OWED = """
SELECT 'question ' || reservation_id FROM file_reservations
WHERE agent_id = :agent AND released_at IS NULL AND expires_at >= :now AND asked_by <> '[]'
LIMIT 1000
"""

HOOK_QUERIES.append(HookQuery("file_reservations", owed=OWED))
