"""Outgoing webhooks and their pending deliveries."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q

from coordination.models import ID_LENGTH, Workspace, not_empty, one_of

# Seconds until the next attempt, by the number of attempts; each is longer than a request's time limit.
BACKOFF = (30, 120, 600, 3600, 4 * 3600, 12 * 3600, 24 * 3600)
MAX_ATTEMPTS = len(BACKOFF) + 1
# Seconds for which a webhook is paused, by the number of failures in a row: 30 at first, an hour at most.
PAUSES = BACKOFF[:4]


class Webhook(models.Model):
    """A URL to which events are sent. The event log is its queue; `cursor` is its position there."""

    webhook_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    url = models.TextField()
    secret = models.CharField(max_length=128)  # signs each request, so it cannot be stored as a hash
    agent_id = models.CharField(max_length=ID_LENGTH, null=True)  # only events that concern this agent
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, related_name="webhooks")
    types = models.JSONField(null=True)  # event types; null is all
    allow_private = models.BooleanField(default=False)  # whether a private or loopback address is allowed
    cursor = models.BigIntegerField()  # the last event that was considered
    created_at = models.DateTimeField()
    last_delivered_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)  # failed attempts in a row, of any delivery
    next_attempt_at = models.DateTimeField(null=True)  # the end of a pause after a failure

    class Meta:
        db_table = "webhooks"
        constraints = not_empty("webhooks", "webhook_id", "url", "secret")

    def __str__(self) -> str:
        return self.webhook_id


class NoticeAddress(models.Model):
    """An address outside of Nexus to which the hub sends what needs a person."""

    notice_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    url = models.TextField(blank=True)  # as the library apprise writes it; it may hold a password or a token
    subscription = models.JSONField(null=True)  # of a browser, from an earlier version: nothing is sent to it
    name = models.CharField(max_length=ID_LENGTH)  # without the secrets
    kinds = models.JSONField(null=True)  # kinds of needs; null is all
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, related_name="notice_addresses")
    quiet_from = models.TimeField(null=True)  # nothing is sent from here
    quiet_until = models.TimeField(null=True)  # to here, in `timezone`
    timezone = models.CharField(max_length=64, null=True)  # null: the hub's
    with_text = models.BooleanField(default=False)  # whether agents' words are sent
    with_answers = models.BooleanField(default=False)  # whether links are sent that answer questions
    allow_private = models.BooleanField(default=False)
    operator = models.CharField(max_length=ID_LENGTH)  # who added it, and in whose name its links answer
    created_at = models.DateTimeField()
    sent_keys = models.JSONField(default=list)  # of the needs that were sent and still wait
    test_requested = models.BooleanField(default=False)
    claims = models.PositiveBigIntegerField(default=0)  # attempts, so that two hubs do not make the same one
    failures = models.PositiveIntegerField(default=0)  # in a row
    next_attempt_at = models.DateTimeField(null=True)  # the end of a pause after a failure
    last_sent_at = models.DateTimeField(null=True)
    last_error = models.CharField(max_length=ID_LENGTH, null=True)

    class Meta:
        db_table = "notice_addresses"
        verbose_name_plural = "notice addresses"
        constraints = [
            *not_empty("notice_addresses", "notice_id", "name", "operator"),
            models.CheckConstraint(
                condition=Q(quiet_from=None, quiet_until=None) | Q(quiet_from__isnull=False, quiet_until__isnull=False),
                name="notice_addresses_quiet_hours_whole",
            ),
        ]

    def __str__(self) -> str:
        return self.name


class WebhookDeliveryQuerySet(models.QuerySet["WebhookDelivery"]):
    """Deliveries by state."""

    def due(self, now: datetime) -> WebhookDeliveryQuerySet:
        """Deliveries to send now, for the first time or again."""
        return self.pending().filter(next_attempt_at__lte=now)

    def pending(self) -> WebhookDeliveryQuerySet:
        """Deliveries to send, now or later."""
        return self.filter(status=WebhookDeliveryStatus.PENDING)

    def dead(self) -> WebhookDeliveryQuerySet:
        return self.filter(status=WebhookDeliveryStatus.DEAD)


class WebhookDeliveryStatus(models.TextChoices):
    """The states of a delivery that has not succeeded. Successful ones are deleted."""

    PENDING = "pending"  # to be sent at next_attempt_at
    DEAD = "dead"  # dead letter: failed the maximum number of times


class WebhookDelivery(models.Model):
    """One event to be sent to one webhook."""

    delivery_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries", db_index=False)
    event_id = models.BigIntegerField()  # no foreign key: events are pruned
    body = models.TextField()
    status = models.CharField(max_length=16, choices=WebhookDeliveryStatus, default=WebhookDeliveryStatus.PENDING)
    attempts = models.PositiveIntegerField(default=0)
    next_attempt_at = models.DateTimeField()
    last_error = models.CharField(max_length=ID_LENGTH, null=True)
    created_at = models.DateTimeField()

    objects = WebhookDeliveryQuerySet.as_manager()

    class Meta:
        db_table = "webhook_deliveries"
        verbose_name_plural = "webhook deliveries"
        indexes = [models.Index(fields=["status", "next_attempt_at"], name="webhook_deliveries_due")]
        constraints = [
            *not_empty("webhook_deliveries", "delivery_id"),
            one_of("webhook_deliveries", "status", WebhookDeliveryStatus),
            models.UniqueConstraint(fields=["webhook", "event_id"], name="webhook_deliveries_once"),
            models.CheckConstraint(condition=Q(attempts__gte=0), name="webhook_deliveries_attempts_not_negative"),
        ]

    def __str__(self) -> str:
        return self.delivery_id
