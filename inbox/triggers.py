"""Triggers that keep the search index current with messages and events.

Each event has one document: its type, actor and payload; for a message its sender, subject, body and artifacts instead.
"""

from __future__ import annotations

from nexus.core.database.migrations import postgres_triggers

EVENT_WORDS = "{row}.type || ' ' || coalesce({row}.actor_agent_id, '') || ' ' || {row}.payload"
MESSAGE_WORDS = "{row}.from_agent_id || ' ' || {row}.subject || ' ' || {row}.body || ' ' || {row}.artifacts"
IS_PLAIN = "{row}.type NOT IN ('message.created', 'session.heartbeat')"

_STATEMENTS = (
    f"""
    CREATE TRIGGER search_event_added AFTER INSERT ON events WHEN {IS_PLAIN.format(row="new")}
    BEGIN
        INSERT INTO search_index(rowid, words) VALUES (new.event_id, {EVENT_WORDS.format(row="new")});
    END
    """,
    f"""
    CREATE TRIGGER search_event_removed AFTER DELETE ON events WHEN {IS_PLAIN.format(row="old")}
    BEGIN
        INSERT INTO search_index(search_index, rowid, words)
        VALUES ('delete', old.event_id, {EVENT_WORDS.format(row="old")});
    END
    """,
    f"""
    CREATE TRIGGER search_message_added AFTER INSERT ON events WHEN new.type = 'message.created'
    BEGIN
        INSERT OR IGNORE INTO message_documents(document, message_id)
        SELECT new.event_id, message_id FROM messages WHERE message_id = json_extract(new.payload, '$.message_id');
        INSERT INTO search_index(rowid, words)
        SELECT d.document, {MESSAGE_WORDS.format(row="m")}
        FROM message_documents d JOIN messages m USING (message_id) WHERE d.document = new.event_id;
    END
    """,
    f"""
    CREATE TRIGGER search_message_removed BEFORE DELETE ON messages
    BEGIN
        INSERT INTO search_index(search_index, rowid, words)
        SELECT 'delete', document, {MESSAGE_WORDS.format(row="old")}
        FROM message_documents WHERE message_id = old.message_id;
        DELETE FROM message_documents WHERE message_id = old.message_id;
    END
    """,
)

_ADD_EVENT = f"""
    INSERT INTO search_index (document, words)
    VALUES (new.event_id, nexus_words({EVENT_WORDS.format(row="new")})) ON CONFLICT DO NOTHING;
"""
_REMOVE_EVENT = "DELETE FROM search_index WHERE document = old.event_id;"
_ADD_MESSAGE = f"""
    INSERT INTO message_documents (document, message_id)
    SELECT new.event_id, message_id FROM messages WHERE message_id = new.payload::json ->> 'message_id'
    ON CONFLICT DO NOTHING;
    INSERT INTO search_index (document, words)
    SELECT d.document, nexus_words({MESSAGE_WORDS.format(row="m")})
    FROM message_documents d JOIN messages m USING (message_id) WHERE d.document = new.event_id
    ON CONFLICT DO NOTHING;
"""
_REMOVE_MESSAGE = """
    DELETE FROM search_index USING message_documents d
    WHERE search_index.document = d.document AND d.message_id = old.message_id;
    DELETE FROM message_documents WHERE message_id = old.message_id;
"""
_IS_MESSAGE = "new.type = 'message.created'"
_OF_POSTGRESQL = {
    "search_event_added": ("AFTER INSERT ON events", _ADD_EVENT, IS_PLAIN.format(row="new")),
    "search_event_removed": ("AFTER DELETE ON events", _REMOVE_EVENT, IS_PLAIN.format(row="old")),
    "search_message_added": ("AFTER INSERT ON events", _ADD_MESSAGE, _IS_MESSAGE),
    "search_message_removed": ("BEFORE DELETE ON messages", _REMOVE_MESSAGE, "true"),
    "search_emptied": ("AFTER TRUNCATE ON events", "TRUNCATE search_index, message_documents;", "true"),
}

TRIGGERS = {  # by database
    "sqlite": {statement.split()[2]: statement for statement in _STATEMENTS},
    "postgresql": postgres_triggers(_OF_POSTGRESQL),
}

_OF_PRUNED = (
    "FROM message_documents d JOIN messages m USING (message_id) WHERE d.document NOT IN (SELECT event_id FROM events)"
)
# The documents of messages whose event retention took: a copy of the store, event by event, would not index them.
PRUNED = {  # by database
    "sqlite": f"INSERT INTO search_index(rowid, words) SELECT d.document, {MESSAGE_WORDS.format(row='m')} {_OF_PRUNED}",
    "postgresql": f"""
        INSERT INTO search_index (document, words)
        SELECT d.document, nexus_words({MESSAGE_WORDS.format(row="m")}) {_OF_PRUNED}
    """,
}
