"""What an agent was asked for, as SQL: `nexus hook` asks it without Django.

`nexus.reservations.debts` tells what of it waits."""

from nexus.core.glances import GLANCES, Glance

OWED = """
SELECT 'question ' || reservation_id FROM file_reservations
WHERE agent_id = :agent AND released_at IS NULL AND expires_at >= :now AND asked_by <> '[]'
LIMIT 1000
"""

GLANCES.append(Glance("file_reservations", owed=OWED))
