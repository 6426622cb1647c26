from django.db import migrations

from nexus.core.database.steps import SQLFor

INDEX = """
    CREATE VIRTUAL TABLE handoff_search USING fts5(
        title, payload, result, content='handoffs', content_rowid='created_event_id',
        tokenize='unicode61 remove_diacritics 2'
    )
"""
# The triggers as they are after every migrate, so that the index is in step from here on.
ADD = """INSERT INTO handoff_search(rowid, title, payload, result)
        VALUES (new.created_event_id, new.title, new.payload, new.result);"""
REMOVE = """INSERT INTO handoff_search(handoff_search, rowid, title, payload, result)
        VALUES ('delete', old.created_event_id, old.title, old.payload, old.result);"""
TRIGGERS = [
    f"CREATE TRIGGER handoff_search_added AFTER INSERT ON handoffs BEGIN {ADD} END",
    f"CREATE TRIGGER handoff_search_removed AFTER DELETE ON handoffs BEGIN {REMOVE} END",
    f"""
    CREATE TRIGGER handoff_search_changed AFTER UPDATE OF title, payload, result ON handoffs
    WHEN new.title IS NOT old.title OR new.payload IS NOT old.payload OR new.result IS NOT old.result
    BEGIN {REMOVE} {ADD} END
    """,
]
POSTGRESQL = [
    "CREATE TABLE handoff_search (document bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX handoff_search_words ON handoff_search USING gin (words)",
    """
    INSERT INTO handoff_search (document, words)
    SELECT created_event_id, nexus_words(concat_ws(' ', title, payload, result)) FROM handoffs
    """,
]


def undo(statement):
    kind, name = statement.split()[1:3]
    return f"DROP {kind} {name}" if kind == "TRIGGER" else migrations.RunSQL.noop


class Migration(migrations.Migration):
    """Full-text search over handoffs, kept in step by triggers."""

    dependencies = [("handoffs", "0007_waiting_handoffs"), ("inbox", "0002_search")]

    operations = [
        SQLFor("sqlite", INDEX, "DROP TABLE handoff_search"),
        SQLFor("sqlite", "INSERT INTO handoff_search(handoff_search) VALUES ('rebuild')"),
        *[SQLFor("sqlite", statement, undo(statement)) for statement in TRIGGERS],
        *[SQLFor("postgresql", statement, "DROP TABLE IF EXISTS handoff_search") for statement in POSTGRESQL],
    ]
