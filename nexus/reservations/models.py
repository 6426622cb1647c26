"""Reservations: which agent holds which files of a project, and who held them."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import Q, Value

from coordination.models import ID_LENGTH, Workspace, not_empty, one_of
from nexus.core.clock import now
from nexus.reservations.patterns import EXTENSION_LENGTH, MAX_PATTERN, PLACE_LENGTH

STREAM = "file"  # of the event log
STREAMS = {STREAM: "who reserved which files"}


class ReservationOutcome(models.TextChoices):
    """How a reservation ended."""

    RELEASED = "released"  # by its holder or an operator
    EXPIRED = "expired"  # its lease expired
    SETTLED = "settled"  # its handoff ended, or its holder lost the claim


class ReservationQuerySet(models.QuerySet["Reservation"]):
    """Reservations by state. One whose lease expired has ended, whether or not that was recorded yet."""

    def unended(self) -> ReservationQuerySet:
        """Those whose end is not recorded."""
        return self.filter(released_at=None)

    def running(self, moment: datetime) -> ReservationQuerySet:
        """Those whose lease has not expired; its last moment still belongs to it."""
        return self.unended().filter(expires_at__gte=moment)


class Reservation(models.Model):
    """The files that a pattern matches, held by an agent until the lease expires; ended ones are history."""

    reservation_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    workspace = models.ForeignKey(Workspace, on_delete=models.CASCADE, related_name="reservations", db_index=False)
    agent_id = models.CharField(max_length=ID_LENGTH)  # the holder
    pattern = models.CharField(max_length=MAX_PATTERN)  # as `patterns.normalized` returns it
    # `patterns.prefix_key` of the pattern: finds what may overlap
    place = models.CharField(max_length=PLACE_LENGTH, blank=True)
    # `patterns.extension` of the pattern: narrows that down
    extension = models.CharField(max_length=EXTENSION_LENGTH, blank=True)
    exclusive = models.BooleanField()  # otherwise shared, which conflicts only with exclusive ones
    reason = models.TextField(null=True)
    handoff_id = models.CharField(max_length=ID_LENGTH, null=True)  # the reservation ends with the holder's claim on it
    task_id = models.BigIntegerField(null=True)  # the planned task it is for, by its number in the cycle
    client_id = models.CharField(max_length=ID_LENGTH, null=True)  # of the call that made it, for retries
    # the event of its beginning: grows with each reservation in the store
    claim_epoch = models.BigIntegerField(default=0, db_default=0)
    item = models.PositiveSmallIntegerField()  # its number in that call
    asked_by = models.JSONField(default=list)  # the agents that requested it, without duplicates
    # who waits for it, with the time (in s) when the wait ends at the latest
    waits = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    # whose commits or pushes the guard refused for it: `services.Refusal`, one for each agent
    refused = models.JSONField(default=list, db_default=Value([], models.JSONField()))
    seconds = models.PositiveIntegerField()  # the length of its lease, from the holder's latest act
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)  # the time of its end
    outcome = models.CharField(max_length=16, choices=ReservationOutcome, null=True)  # the kind of its end

    objects = ReservationQuerySet.as_manager()

    class Meta:
        db_table = "file_reservations"
        indexes = [
            models.Index(fields=["workspace", "place"], name="files_held", condition=Q(released_at=None)),
            models.Index(
                fields=["workspace", "extension", "place"], name="files_by_extension", condition=Q(released_at=None)
            ),
            models.Index(fields=["expires_at"], name="files_by_lease", condition=Q(released_at=None)),
            models.Index(fields=["agent_id", "workspace"], name="files_of_agent", condition=Q(released_at=None)),
            models.Index(
                fields=["handoff_id"], name="files_of_handoff", condition=Q(released_at=None, handoff_id__isnull=False)
            ),
            models.Index(
                fields=["workspace", "place", "released_at"], name="files_had", condition=Q(released_at__isnull=False)
            ),
            models.Index(
                fields=["workspace", "released_at"], name="files_had_last", condition=Q(released_at__isnull=False)
            ),
            models.Index(fields=["released_at"], name="files_ended", condition=Q(released_at__isnull=False)),
        ]
        constraints = [
            *not_empty("file_reservations", "reservation_id", "agent_id", "pattern", "client_id"),
            one_of("file_reservations", "outcome", ReservationOutcome),
            models.UniqueConstraint(
                fields=["agent_id", "client_id", "item"],
                condition=Q(client_id__isnull=False),
                name="file_reservations_made_once",
            ),
            models.CheckConstraint(
                condition=Q(released_at=None, outcome=None) | Q(released_at__isnull=False, outcome__isnull=False),
                name="file_reservations_ended_somehow",
            ),
        ]

    def __str__(self) -> str:
        return self.pattern

    @property
    def waiting(self) -> list[str]:
        """The agents that wait for it now."""
        moment = now().timestamp()
        return [wait["agent_id"] for wait in self.waits if wait["until"] > moment and self.released_at is None]
