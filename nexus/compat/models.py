"""What was imported from other systems: how far, and the ids that its rows had there."""

from __future__ import annotations

from django.db import models

from coordination.models import ID_LENGTH


class ImportedStore(models.Model):
    """A store that was imported. A second import of it continues where the first one ended."""

    source = models.CharField(primary_key=True, max_length=ID_LENGTH)  # the system, and what tells its stores apart
    events_through = models.BigIntegerField(default=0)  # the last event that was read, as it is numbered there
    imported_at = models.DateTimeField()

    class Meta:
        db_table = "imported_stores"

    def __str__(self) -> str:
        return self.source


class ImportedId(models.Model):
    """The id that an imported row had, and its id here. Ids here sort by time, which those of other systems need
    not."""

    old_id = models.CharField(primary_key=True, max_length=ID_LENGTH)
    new_id = models.CharField(max_length=ID_LENGTH)

    class Meta:
        db_table = "imported_ids"

    def __str__(self) -> str:
        return f"{self.old_id} → {self.new_id}"
