"""Topics, their messages, and the peers that follow them."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from coordination.models import ID_LENGTH, not_empty, one_of
from nexus.core.database.migrations import postgres_triggers
from nexus.topics.naming import MAX_AGENT_NAME, MAX_CLIENT_MESSAGE_ID, MAX_MESSAGE_TYPE, MAX_TOPIC_NAME

STREAM = "topic"  # of the event log
STREAMS = {STREAM: "topics and their messages"}


class TopicStatus(models.TextChoices):
    """The states of a topic."""

    OPEN = "open"
    CLOSED = "closed"  # takes no more messages, but can still be joined, read and searched


class TopicQuerySet(models.QuerySet["Topic"]):
    """Topics by state and age."""

    def open(self) -> TopicQuerySet:
        return self.filter(status=TopicStatus.OPEN)

    def newest_first(self) -> TopicQuerySet:
        return self.order_by("-created_at", "-topic_id")


class Topic(models.Model):
    """A topic: whoever joins reads the same ordered stream. Names can repeat; a name means its newest topic."""

    topic_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    name = models.CharField(max_length=MAX_TOPIC_NAME)
    status = models.CharField(max_length=16, choices=TopicStatus, default=TopicStatus.OPEN)
    metadata = models.JSONField(null=True)
    last_seq = models.BigIntegerField(default=0)  # of the newest message; the next one gets the next number
    created_at = models.DateTimeField()
    last_message_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    close_reason = models.TextField(null=True)

    objects = TopicQuerySet.as_manager()

    class Meta:
        db_table = "topics"
        indexes = [
            models.Index(fields=["name", "status", "created_at"], name="topics_by_name"),
            models.Index(fields=["created_at", "topic_id"], name="topics_by_age"),
            models.Index(fields=["closed_at"], name="topics_closed", condition=Q(closed_at__isnull=False)),
        ]
        constraints = [
            *not_empty("topics", "topic_id", "name"),
            one_of("topics", "status", TopicStatus),
            models.CheckConstraint(
                condition=Q(status="closed", closed_at__isnull=False) | Q(status="open", closed_at__isnull=True),
                name="topics_closed_at_iff_closed",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class TopicMessage(models.Model):
    """A message in a topic, with its sequence number."""

    document = models.BigAutoField(primary_key=True)  # in the search index; a rowid of its own, which VACUUM keeps
    message_id = models.CharField(unique=True, max_length=ID_LENGTH)
    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="messages", db_index=False)
    seq = models.BigIntegerField()
    sender = models.CharField(max_length=MAX_AGENT_NAME)  # a peer's name
    message_type = models.CharField(max_length=MAX_MESSAGE_TYPE)  # any; by convention message, question, answer
    reply_to = models.CharField(max_length=ID_LENGTH, null=True)  # a message_id of this topic; imports may hold others
    content_markdown = models.TextField()
    metadata = models.JSONField(null=True)
    # a second message with it is a repeated call
    client_message_id = models.CharField(max_length=MAX_CLIENT_MESSAGE_ID, null=True)
    created_at = models.DateTimeField()

    class Meta:
        db_table = "topic_messages"
        indexes = [
            models.Index(fields=["topic", "reply_to"], name="topic_replies", condition=Q(reply_to__isnull=False)),
        ]
        constraints = [
            *not_empty("topic_messages", "message_id", "sender"),
            models.UniqueConstraint(fields=["topic", "seq"], name="topic_messages_numbered_once"),
            models.UniqueConstraint(
                fields=["topic", "sender", "client_message_id"],
                name="topic_messages_sent_once",
                condition=Q(client_message_id__isnull=False),
            ),
            models.CheckConstraint(condition=Q(seq__gte=1), name="topic_messages_seq_from_one"),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.sender}"


class Mention(models.Model):
    """An agent that a message names: `@agent_id`."""

    message = models.ForeignKey(
        TopicMessage, on_delete=models.CASCADE, related_name="mentions", db_column="document", db_index=False
    )
    agent_id = models.CharField(max_length=ID_LENGTH)

    class Meta:
        db_table = "topic_mentions"
        constraints = [models.UniqueConstraint(fields=["message", "agent_id"], name="topic_mentions_once")]
        indexes = [models.Index(fields=["agent_id"], name="topic_mentions_of_agent")]

    def __str__(self) -> str:
        return f"{self.agent_id} in {self.message_id}"


class PeerQuerySet(models.QuerySet["Peer"]):
    """Peers by presence."""

    def present(self, since: datetime) -> PeerQuerySet:
        """Those that synced since a moment, latest first."""
        return self.filter(synced_at__gte=since).order_by("-synced_at", "agent_name")


class Peer(models.Model):
    """A name in a topic: its reservation, and its cursor, which survives restarts."""

    topic = models.ForeignKey(Topic, on_delete=models.CASCADE, related_name="peers", db_index=False)
    agent_name = models.CharField(max_length=MAX_AGENT_NAME)
    agent_id = models.CharField(max_length=ID_LENGTH, null=True)  # the agent whose key the last joining connection had
    # sha256 of reclaim_token; null: the next peer that joins reserves it
    token_hash = models.CharField(max_length=64, null=True)
    last_seq = models.BigIntegerField(default=0)  # the cursor
    # from the cursor up to here all messages are its own: they are not read again
    own_through = models.BigIntegerField(default=0)
    created_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)  # the last time it joined
    synced_at = models.DateTimeField(null=True)  # the cursor's updated_at, which presence is based on

    objects = PeerQuerySet.as_manager()

    class Meta:
        db_table = "topic_peers"
        indexes = [
            models.Index(fields=["topic", "synced_at"], name="topic_peers_by_presence"),
            models.Index(fields=["agent_id"], name="topic_peers_of_agent", condition=Q(agent_id__isnull=False)),
            models.Index(fields=["agent_name"], name="topic_peers_by_name", condition=Q(agent_id__isnull=True)),
        ]
        constraints = [
            *not_empty("topic_peers", "agent_name", "token_hash"),
            models.UniqueConstraint(fields=["topic", "agent_name"], name="topic_peers_name_once"),
            models.CheckConstraint(condition=Q(last_seq__gte=0), name="topic_peers_cursor_not_negative"),
        ]

    def __str__(self) -> str:
        return self.agent_name

    @property
    def floor(self) -> int:
        """The sequence number after which there may be messages of others that the peer has not received."""
        return max(self.last_seq, self.own_through)


class Embedding(models.Model):
    """The vector of a message from one model. Triggers delete it with its message, and clear the model where the text
    changes."""

    message = models.OneToOneField(
        TopicMessage, on_delete=models.DO_NOTHING, primary_key=True, related_name="embedding", db_column="document"
    )
    model = models.CharField(max_length=1100, blank=True)  # its identity; empty where the vector is of an older text
    vector = models.BinaryField()

    class Meta:
        db_table = "topic_embeddings"
        indexes = [models.Index(fields=["model"], name="topic_embeddings_of_model")]

    def __str__(self) -> str:
        return f"{self.message_id} {self.model}"


# Triggers that keep the search indexes in step with the messages. The full-text index reads the messages and stores
# none; vectors are deleted with their message, and marked as stale when its text changes.
_ADD_TO_SEARCH = """INSERT INTO topic_search(rowid, topic_id, content_markdown)
        VALUES (new.document, new.topic_id, new.content_markdown);"""
_REMOVE_FROM_SEARCH = """INSERT INTO topic_search(topic_search, rowid, topic_id, content_markdown)
        VALUES ('delete', old.document, old.topic_id, old.content_markdown);"""

SQLITE_TRIGGERS = {
    "topic_search_added": f"""
    CREATE TRIGGER topic_search_added AFTER INSERT ON topic_messages
    BEGIN
        {_ADD_TO_SEARCH}
    END
    """,
    "topic_search_removed": f"""
    CREATE TRIGGER topic_search_removed AFTER DELETE ON topic_messages
    BEGIN
        {_REMOVE_FROM_SEARCH}
    END
    """,
    "topic_search_changed": f"""
    CREATE TRIGGER topic_search_changed AFTER UPDATE OF topic_id, content_markdown ON topic_messages
    BEGIN
        {_REMOVE_FROM_SEARCH}
        {_ADD_TO_SEARCH}
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
POSTGRESQL_TRIGGERS = {
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
    "sqlite": SQLITE_TRIGGERS,
    "postgresql": postgres_triggers(POSTGRESQL_TRIGGERS),
}
