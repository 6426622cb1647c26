"""Triggers that keep the search indexes in step with the messages of topics. The full-text index reads the messages and
stores none; vectors are deleted with their message, and marked as stale when its text changes."""

from __future__ import annotations

from nexus.core.database.migrations import postgres_triggers

_ADD = """INSERT INTO topic_search(rowid, topic_id, content_markdown)
        VALUES (new.document, new.topic_id, new.content_markdown);"""
_REMOVE = """INSERT INTO topic_search(topic_search, rowid, topic_id, content_markdown)
        VALUES ('delete', old.document, old.topic_id, old.content_markdown);"""

SQLITE = {
    "topic_search_added": f"""
    CREATE TRIGGER topic_search_added AFTER INSERT ON topic_messages
    BEGIN
        {_ADD}
    END
    """,
    "topic_search_removed": f"""
    CREATE TRIGGER topic_search_removed AFTER DELETE ON topic_messages
    BEGIN
        {_REMOVE}
    END
    """,
    "topic_search_changed": f"""
    CREATE TRIGGER topic_search_changed AFTER UPDATE OF topic_id, content_markdown ON topic_messages
    BEGIN
        {_REMOVE}
        {_ADD}
    END
    """,
    "topic_embedding_removed": """
    CREATE TRIGGER topic_embedding_removed AFTER DELETE ON topic_messages
    BEGIN
        DELETE FROM topic_embeddings WHERE document = old.document;
    END
    """,
    "topic_embedding_outdated": """
    CREATE TRIGGER topic_embedding_outdated AFTER UPDATE OF content_markdown ON topic_messages
    WHEN new.content_markdown <> old.content_markdown
    BEGIN
        UPDATE topic_embeddings SET model = '' WHERE document = new.document;
    END
    """,
}

_ADD_WORDS = """INSERT INTO topic_search (document, words) VALUES (new.document, nexus_words(new.content_markdown))
    ON CONFLICT (document) DO UPDATE SET words = excluded.words;"""
_OF_POSTGRESQL = {
    "topic_search_added": ("AFTER INSERT ON topic_messages", _ADD_WORDS, "true"),
    "topic_search_removed": (
        "AFTER DELETE ON topic_messages",
        "DELETE FROM topic_search WHERE document = old.document;",
        "true",
    ),
    "topic_search_changed": (
        "AFTER UPDATE OF content_markdown ON topic_messages",
        _ADD_WORDS,
        "new.content_markdown IS DISTINCT FROM old.content_markdown",
    ),
    "topic_search_emptied": ("AFTER TRUNCATE ON topic_messages", "TRUNCATE topic_search;", "true"),
    # Before the message is deleted: the vector refers to it.
    "topic_embedding_removed": (
        "BEFORE DELETE ON topic_messages",
        "DELETE FROM topic_embeddings WHERE document = old.document;",
        "true",
    ),
    "topic_embedding_outdated": (
        "AFTER UPDATE OF content_markdown ON topic_messages",
        "UPDATE topic_embeddings SET model = '' WHERE document = new.document;",
        "new.content_markdown <> old.content_markdown",
    ),
}
TRIGGERS = {  # by database
    "sqlite": SQLITE,
    "postgresql": postgres_triggers(_OF_POSTGRESQL),
}
