"""Messages and their deliveries, one per recipient (docs/explanation/delivery.md)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import models
from django.db.models import Q

from coordination.models import ID_LENGTH, Agent, Channel, TargetField, Workspace, not_empty, one_of
from nexus.core.database.migrations import postgres_triggers

ARRIVALS = frozenset({"message.created", "message.requeued", "message.forwarded"})  # events after which mail waits


class Message(models.Model):
    """A message that an agent sent; immutable."""

    message_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(
        Workspace, on_delete=models.CASCADE, to_field="number", related_name="messages", db_index=False
    )
    from_agent_id = models.CharField(max_length=ID_LENGTH)
    from_session_id = models.CharField(max_length=ID_LENGTH, null=True)  # no foreign key: sessions are pruned
    channel = models.ForeignKey(Channel, on_delete=models.PROTECT, null=True, related_name="messages", db_index=False)
    parent = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        related_name="replies",
        db_column="parent_message_id",
        db_index=False,
    )
    target = TargetField(null=True)  # canonical; null is a broadcast
    subject = models.TextField()
    body = models.TextField()
    artifacts = models.JSONField(default=list)  # artifact ids
    client_id = models.CharField(max_length=ID_LENGTH, null=True)  # by which its sender knows a repeated call
    trace_id = models.CharField(max_length=ID_LENGTH, null=True)  # by which its sender finds what belongs together
    expect = models.CharField(max_length=16, null=True)  # the stage that its sender expects of each recipient
    expect_by = models.DateTimeField(null=True)  # by when; null once all have reached it
    proof = models.CharField(max_length=16, null=True)  # what proves its sender (coordination/provenance.py)
    told_at = models.DateTimeField(null=True)  # when its sender was told that some had not
    recipients_count = models.PositiveIntegerField(default=0)  # as sent; the deliveries themselves may be pruned
    created_at = models.DateTimeField()

    class Meta:
        db_table = "messages"
        indexes = [  # ids rise with time, and pages of mail go by them
            models.Index(fields=["workspace", "message_id"], name="messages_by_workspace"),
            models.Index(fields=["from_agent_id", "message_id"], name="messages_of_sender"),
            models.Index(
                fields=["channel", "message_id"], name="messages_by_channel", condition=Q(channel__isnull=False)
            ),
            models.Index(fields=["parent"], name="messages_by_parent", condition=Q(parent__isnull=False)),
            models.Index(fields=["message_id"], name="messages_to_nobody", condition=Q(recipients_count=0)),
            models.Index(fields=["expect_by"], name="messages_expected", condition=Q(expect_by__isnull=False)),
        ]
        constraints = [
            *not_empty("messages", "message_id", "from_agent_id", "subject", "body"),
            models.UniqueConstraint(
                fields=["from_agent_id", "client_id"], name="messages_once", condition=Q(client_id__isnull=False)
            ),
        ]

    def __str__(self) -> str:
        return self.subject


class DeliveryQuerySet(models.QuerySet["Delivery"]):
    """Deliveries by status."""

    def of(self, agent_id: str) -> DeliveryQuerySet:
        return self.filter(recipient_id=agent_id)

    def unread(self) -> DeliveryQuerySet:
        return self.filter(status=DeliveryStatus.UNREAD)

    def lapsed(self, now: datetime) -> DeliveryQuerySet:
        """In flight with a lease that ended strictly before `now`: the next pull delivers it again."""
        return self.filter(status=DeliveryStatus.DELIVERED, lease_expires_at__lt=now)

    def leased(self, now: datetime) -> DeliveryQuerySet:
        """In flight with a running lease."""
        return self.filter(status=DeliveryStatus.DELIVERED, lease_expires_at__gte=now)

    def ids_with_status(self, status: str, now: datetime) -> models.QuerySet[Any, Any]:
        """The ids of those whose current status is `status`: in flight with an expired lease counts as unread."""
        if status == DeliveryStatus.UNREAD:  # two lists: no index answers for both at once
            return self.unread().values("pk").union(self.lapsed(now).values("pk"), all=True)
        return (self.leased(now) if status == DeliveryStatus.DELIVERED else self.filter(status=status)).values("pk")

    def with_status(self, status: str, now: datetime) -> DeliveryQuerySet:
        """Those of `ids_with_status`."""
        return self.filter(pk__in=self.ids_with_status(status, now))


class DeliveryStatus(models.TextChoices):
    """The states of a delivery."""

    UNREAD = "unread"  # waiting to be pulled
    DELIVERED = "delivered"  # in flight: pulled and leased, not yet acknowledged
    READ = "read"  # acknowledged; history
    PARKED = "parked"  # dead letter: handed out the most times allowed and never acknowledged


PENDING = (DeliveryStatus.UNREAD, DeliveryStatus.DELIVERED, DeliveryStatus.PARKED)  # mail that is not acknowledged


class Delivery(models.Model):
    """One message in one agent's inbox."""

    delivery_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    recipient = models.ForeignKey(
        Agent, on_delete=models.CASCADE, related_name="deliveries", db_column="recipient_agent_id", db_index=False
    )
    status = models.CharField(max_length=16, choices=DeliveryStatus, default=DeliveryStatus.UNREAD)
    attempts = models.PositiveIntegerField(default=0)  # how often it was handed out
    noticed_at = models.DateTimeField(null=True)
    noticed_by = models.CharField(max_length=ID_LENGTH, null=True)  # the hook, push or wake-up that was first
    delivered_at = models.DateTimeField(null=True)
    delivered_to = models.CharField(max_length=ID_LENGTH, null=True)  # the session, connection or turn that pulled it
    lease_expires_at = models.DateTimeField(null=True)
    read_at = models.DateTimeField(null=True)
    read_by = models.CharField(max_length=ID_LENGTH, null=True)  # the session, connection, turn or operator
    # Commits that name the message, found in the recipient's work: their `commit`, `where` they were read, and when.
    commits = models.JSONField(null=True)
    created_at = models.DateTimeField()

    objects = DeliveryQuerySet.as_manager()

    class Meta:
        db_table = "message_deliveries"
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(  # what is read has lists of its own below, and is nearly all there is
                fields=["recipient", "status", "delivery_id"],
                name="deliveries_in_lanes",
                condition=Q(status="unread") | Q(status="delivered") | Q(status="parked"),
            ),
            models.Index(fields=["recipient", "delivery_id"], name="deliveries_to"),  # in the order of its list
            models.Index(fields=["recipient", "message"], name="deliveries_to_by_message"),  # in that of messages
            models.Index(fields=["lease_expires_at"], name="deliveries_by_lease", condition=Q(status="delivered")),
            models.Index(
                fields=["status", "created_at"],
                name="deliveries_waiting",
                condition=Q(status="unread") | Q(status="parked"),
            ),
            models.Index(  # its status, so that to count them it is enough
                fields=["recipient", "status", "-read_at"], name="deliveries_read", condition=Q(status="read")
            ),
            models.Index(fields=["read_at"], name="deliveries_prunable", condition=Q(status="read")),
        ]
        constraints = [
            *not_empty("deliveries", "delivery_id"),
            one_of("deliveries", "status", DeliveryStatus),
            models.UniqueConstraint(fields=["message", "recipient"], name="deliveries_once"),
            models.CheckConstraint(condition=Q(attempts__gte=0), name="deliveries_attempts_not_negative"),
            models.CheckConstraint(
                condition=~Q(status="delivered") | Q(lease_expires_at__isnull=False, delivered_at__isnull=False),
                name="deliveries_in_flight_has_lease",
            ),
            models.CheckConstraint(
                condition=~Q(status="read") | Q(read_at__isnull=False), name="deliveries_read_has_time"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.message_id} → {self.recipient_id}"


# Triggers that keep the search index current with messages and events. Each event has one document: its type, actor
# and payload; for a message its sender, subject, body and artifacts instead.
EVENT_WORDS = "{row}.type || ' ' || coalesce({row}.actor_agent_id, '') || ' ' || {row}.payload"
MESSAGE_WORDS = "{row}.from_agent_id || ' ' || {row}.subject || ' ' || {row}.body || ' ' || {row}.artifacts"
IS_PLAIN = "{row}.type NOT IN ('message.created', 'session.heartbeat')"

SQLITE_TRIGGERS = (
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
POSTGRESQL_TRIGGERS = {
    "search_event_added": ("AFTER INSERT ON events", _ADD_EVENT, IS_PLAIN.format(row="new")),
    "search_event_removed": ("AFTER DELETE ON events", _REMOVE_EVENT, IS_PLAIN.format(row="old")),
    "search_message_added": ("AFTER INSERT ON events", _ADD_MESSAGE, _IS_MESSAGE),
    "search_message_removed": ("BEFORE DELETE ON messages", _REMOVE_MESSAGE, "true"),
    "search_emptied": ("AFTER TRUNCATE ON events", "TRUNCATE search_index, message_documents;", "true"),
}

TRIGGERS = {  # by database
    "sqlite": {statement.split()[2]: statement for statement in SQLITE_TRIGGERS},
    "postgresql": postgres_triggers(POSTGRESQL_TRIGGERS),
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
