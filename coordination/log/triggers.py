"""What keeps the log append-only in the schema itself, whatever code reaches it."""

from __future__ import annotations

TRIGGERS = {
    "events_refuse_update": """
        CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events
        BEGIN SELECT RAISE(ABORT, 'events are append-only'); END
    """,
    "events_refuse_delete": """
        CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
        WHEN NOT EXISTS (SELECT 1 FROM retention_passes)
        BEGIN SELECT RAISE(ABORT, 'events are append-only: only a retention pass deletes'); END
    """,
}
