"""The table of MCP: the last writes of relays."""

from __future__ import annotations

from django.db import models

ID_LENGTH = 64


class RecordedCall(models.Model):
    """The last write of a relay in one of its slots: what its repetition is answered."""

    slot = models.CharField(primary_key=True, max_length=ID_LENGTH)  # the connection, and a number
    key = models.CharField(max_length=ID_LENGTH)  # a hash of the request's key and what it is for
    stage = models.PositiveSmallIntegerField()
    answer = models.BinaryField(null=True)  # encrypted with the request's key; null: unknown, or too long
    recorded_at = models.DateTimeField()

    class Meta:
        db_table = "mcp_recorded_calls"

    def __str__(self) -> str:
        return self.slot
