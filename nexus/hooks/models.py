"""Outgoing webhooks, and addresses for notices."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from coordination.models import ID_LENGTH, Workspace, not_empty

# Seconds until the next attempt, by the number of failures in a row; each is longer than a request's time limit.
PAUSES = (30, 120, 600, 3600)


class Webhook(models.Model):
    """A URL to which events are sent. The event log is its queue; `cursor` is its position there."""

    webhook_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    url = models.TextField()
    secret = models.CharField(max_length=128)  # signs each request, so it cannot be stored as a hash
    agent_id = models.CharField(max_length=ID_LENGTH, null=True)  # only events that concern this agent
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, null=True, related_name="webhooks")
    types = models.JSONField(null=True)  # event types; null is all
    allow_private = models.BooleanField(default=False)  # whether a private or loopback address is allowed
    cursor = models.BigIntegerField()  # the last event that was sent, given up, or is not for it
    created_at = models.DateTimeField()
    last_delivered_at = models.DateTimeField(null=True)
    failures = models.PositiveIntegerField(default=0)  # attempts of the next event that did not succeed
    next_attempt_at = models.DateTimeField(null=True)  # the end of a pause after a failure
    last_error = models.CharField(max_length=ID_LENGTH, null=True)  # of the latest attempt
    given_up = models.PositiveIntegerField(default=0)  # events whose attempts all failed

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
