from django.db import migrations

from nexus.core.database.steps import SQLFor

REFUSE_UPDATE = """
CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are append-only'); END
"""
REFUSE_DELETE = """
CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
WHEN NOT EXISTS (SELECT 1 FROM retention_passes)
BEGIN SELECT RAISE(ABORT, 'events are append-only: only a retention pass deletes'); END
"""


class Migration(migrations.Migration):
    """The log is append-only in the schema itself, whatever code reaches it; on PostgreSQL the triggers come after
    every migrate alone."""

    dependencies = [("coordination", "0001_initial")]

    operations = [
        SQLFor("sqlite", REFUSE_UPDATE, "DROP TRIGGER events_refuse_update"),
        SQLFor("sqlite", REFUSE_DELETE, "DROP TRIGGER events_refuse_delete"),
    ]
