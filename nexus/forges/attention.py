"""The connected forges that an operator must look at."""

from __future__ import annotations

from inbox.monitoring import Picture
from nexus.core.contributions import AttentionItem, AttentionKind, Found
from nexus.forges.models import Forge


def _refused(picture: Picture, each: int) -> Found:
    """Find forges that refuse their token, or that failed more than once in a row."""
    rows = [row for row in Forge.objects.order_by("created_at") if row.refused_at is not None or row.failures > 1]
    rows = [row for row in rows if picture.includes(row.workspace_id)]
    return Found(len(rows), [_item(row) for row in rows[:each]])


def _item(row: Forge) -> AttentionItem:
    if row.refused_at is None:
        return AttentionItem(f"{row.repository} cannot be reached", row.last_error or "", row.pk)
    what = "Nothing is lost. Make a new token, and connect it again with that."
    return AttentionItem(f"{row.repository} refuses its token", what, row.pk, since=row.refused_at)


KINDS = (
    AttentionKind(
        "forges",
        "Forges that fail",
        "merge",
        18,
        _refused,
        page="forges",
        command="nexus forge",
    ),
)
