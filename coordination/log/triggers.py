"""The triggers that keep the log append-only in the database itself, whatever code writes to it."""

from __future__ import annotations

from nexus.core.database.migrations import postgres_trigger

SQLITE = {
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
REFUSED = "RAISE EXCEPTION 'events are append-only' USING ERRCODE = 'integrity_constraint_violation';"
POSTGRESQL = {
    "events_refuse_update": postgres_trigger("events_refuse_update", "BEFORE UPDATE ON events", REFUSED),
    "events_refuse_delete": postgres_trigger(
        "events_refuse_delete",
        "BEFORE DELETE ON events",
        f"IF NOT EXISTS (SELECT 1 FROM retention_passes) THEN {REFUSED} END IF;",
    ),
}
TRIGGERS = {"sqlite": SQLITE, "postgresql": POSTGRESQL}  # by database
