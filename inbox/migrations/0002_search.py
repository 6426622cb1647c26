from django.db import migrations, models

from nexus.core.database.steps import SQLFor

# One document per event: its type, actor and payload; for a message its sender, subject, body and artifacts instead. The index keeps no
# text of its own (content=''), and `message_documents` leads from a document to its message once the event is pruned.
TABLES = [
    "CREATE VIRTUAL TABLE search_index USING fts5(words, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')",
    "CREATE TABLE message_documents (document INTEGER PRIMARY KEY, message_id TEXT NOT NULL UNIQUE)",
]
# On PostgreSQL a document's words are tokens as FTS5 makes them: runs of letters and digits without case and accents.
# Bounds keep every text within what a tsvector holds (1 MB in all, 2,046 bytes a word); none is refused. No store there
# is older than this step.
TOKENS = """
    CREATE FUNCTION nexus_tokens(text) RETURNS text[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT array_remove(regexp_split_to_array(
            left(normalize(regexp_replace(
                normalize(translate(lower(left($1, 200000) COLLATE "und-x-icu"), 'ς', 'σ'), NFD),
                '[\u0300-\u036f]+', '', 'g'
            ), NFC), 200000) COLLATE "und-x-icu",
            '[^[:alnum:]²³¹¼½¾]+'
        ), '')
    $$
"""
# Not to_tsvector: its parser has an idea of numbers, and the alphabet of the database's locale.
WORDS = """
    CREATE FUNCTION nexus_words(text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
        SELECT coalesce(string_agg(left(token, 255) || ':' || place, ' '), '')::tsvector
        FROM unnest(nexus_tokens($1)) WITH ORDINALITY AS found(token, place)
    $$
"""
POSTGRESQL = [
    TOKENS,
    WORDS,
    "CREATE TABLE search_index (document bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX search_index_words ON search_index USING gin (words)",
    "CREATE TABLE message_documents (document bigint PRIMARY KEY, message_id text NOT NULL UNIQUE)",
]
EVENT_WORDS = "{row}.type || ' ' || coalesce({row}.actor_agent_id, '') || ' ' || {row}.payload"
MESSAGE_WORDS = "{row}.from_agent_id || ' ' || {row}.subject || ' ' || {row}.body || ' ' || {row}.artifacts"
IS_PLAIN = "{row}.type NOT IN ('message.created', 'session.heartbeat')"

TRIGGERS = [
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
]
EXISTING = [
    f"INSERT INTO search_index(rowid, words) SELECT event_id, {EVENT_WORDS.format(row='e')} FROM events e WHERE {IS_PLAIN.format(row='e')}",
    """
    INSERT OR IGNORE INTO message_documents(document, message_id)
    SELECT e.event_id, m.message_id FROM events e JOIN messages m ON m.message_id = json_extract(e.payload, '$.message_id')
    WHERE e.type = 'message.created'
    """,
    f"""
    INSERT INTO search_index(rowid, words)
    SELECT d.document, {MESSAGE_WORDS.format(row='m')} FROM message_documents d JOIN messages m USING (message_id)
    """,
    """
    UPDATE messages SET recipients_count =
        (SELECT count(*) FROM message_deliveries d WHERE d.message_id = messages.message_id)
    """,
]


def undo(statement: str) -> str:
    kind, name = statement.replace("VIRTUAL ", "").split()[1:3]
    return f"DROP {kind} {name}"


class Migration(migrations.Migration):
    """Full-text search over messages and events, kept in step by triggers; and how many agents a message reached."""

    dependencies = [
        ("coordination", "0003_deleted_agents_stored_settings"),
        ("inbox", "0001_initial"),
    ]

    operations = [
        migrations.AddField("message", "recipients_count", models.PositiveIntegerField(default=0)),
        *[SQLFor("sqlite", statement, undo(statement)) for statement in [*TABLES, *TRIGGERS]],
        *[SQLFor("sqlite", statement) for statement in EXISTING],
        *[SQLFor("postgresql", statement, undo(statement)) for statement in POSTGRESQL],
        migrations.AddIndex(
            "message",
            models.Index(
                fields=["message_id"], name="messages_to_nobody", condition=models.Q(recipients_count=0)
            ),
        ),
    ]
