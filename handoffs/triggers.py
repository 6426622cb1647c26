"""Triggers that keep the search index current: title, payload and result of each handoff."""

from __future__ import annotations

from nexus.core.database.migrations import postgres_triggers

_ADD = """INSERT INTO handoff_search(rowid, title, payload, result)
        VALUES (new.created_event_id, new.title, new.payload, new.result);"""
_REMOVE = """INSERT INTO handoff_search(handoff_search, rowid, title, payload, result)
        VALUES ('delete', old.created_event_id, old.title, old.payload, old.result);"""

SQLITE_TRIGGERS = {
    "handoff_search_added": f"""
    CREATE TRIGGER handoff_search_added AFTER INSERT ON handoffs
    BEGIN
        {_ADD}
    END
    """,
    "handoff_search_removed": f"""
    CREATE TRIGGER handoff_search_removed AFTER DELETE ON handoffs
    BEGIN
        {_REMOVE}
    END
    """,
    "handoff_search_changed": f"""
    CREATE TRIGGER handoff_search_changed AFTER UPDATE OF title, payload, result ON handoffs
    WHEN new.title IS NOT old.title OR new.payload IS NOT old.payload OR new.result IS NOT old.result
    BEGIN
        {_REMOVE}
        {_ADD}
    END
    """,
}

WORDS = "nexus_words(concat_ws(' ', {row}.title, {row}.payload, {row}.result))"
_ADD_WORDS = f"""INSERT INTO handoff_search (document, words)
    VALUES (new.created_event_id, {WORDS.format(row="new")})
    ON CONFLICT (document) DO UPDATE SET words = excluded.words;"""
_OF_POSTGRESQL = {
    "handoff_search_added": ("AFTER INSERT ON handoffs", _ADD_WORDS, "true"),
    "handoff_search_removed": (
        "AFTER DELETE ON handoffs",
        "DELETE FROM handoff_search WHERE document = old.created_event_id;",
        "true",
    ),
    "handoff_search_changed": (
        "AFTER UPDATE ON handoffs",
        _ADD_WORDS,
        "(new.title, new.payload, new.result) IS DISTINCT FROM (old.title, old.payload, old.result)",
    ),
    "handoff_search_emptied": ("AFTER TRUNCATE ON handoffs", "TRUNCATE handoff_search;", "true"),
}

TRIGGERS = {"sqlite": SQLITE_TRIGGERS, "postgresql": postgres_triggers(_OF_POSTGRESQL)}  # by database
