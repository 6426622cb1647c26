"""What an operator must look at of connected forges: those that fail, and work that could not be published."""

from __future__ import annotations

from collections.abc import Sequence

from inbox.monitoring import Picture
from nexus.core.contributions import Action, AttentionItem, AttentionKind, Items
from nexus.forges.models import Forge, ForgeIssue


def _refused(picture: Picture, each: int) -> Items:
    """Find forges that refuse their token, or that failed more than once in a row."""
    rows = [row for row in Forge.objects.order_by("created_at") if row.refused_at is not None or row.failures > 1]
    rows = [row for row in rows if picture.includes(row.workspace_id)]
    return Items(len(rows), [_item(row) for row in rows[:each]])


def _item(row: Forge) -> AttentionItem:
    if row.refused_at is None:
        return AttentionItem(f"{row.repository} cannot be reached", row.last_error or "", row.pk)
    what = "Nothing is lost. Make a new token, and connect it again with that."
    return AttentionItem(f"{row.repository} refuses its token", what, row.pk, since=row.refused_at)


def _unpublished(picture: Picture, each: int) -> Items:
    """Find work whose push failed."""
    rows = ForgeIssue.objects.exclude(last_error=None).filter(ended="").select_related("forge").order_by("pk")
    failed = [row for row in rows if picture.includes(row.forge.workspace_id)]
    needs = [
        AttentionItem(f"Work on {row.forge.repository}: {row.title}", row.last_error or "", row.handoff_id)
        for row in failed[:each]
    ]
    return Items(len(failed), needs)


KINDS = (
    AttentionKind(
        "forges",
        "Forges that fail",
        "merge",
        43,
        _refused,
        page="forges_forge_change",
        command="nexus forge",
    ),
    AttentionKind(
        "unpublished",
        "Work that could not be published",
        "merge",
        44,
        _unpublished,
        page="handoffs_handoff_change",
        actions=("forge_publish",),
        command="nexus forge",
    ),
)


def _repositories(forge_ids: Sequence[str]) -> dict[str, str]:
    return dict(Forge.objects.filter(pk__in=forge_ids).values_list("pk", "repository"))


def _titles(handoff_ids: Sequence[str]) -> dict[str, str]:
    rows = ForgeIssue.objects.filter(handoff_id__in=handoff_ids)
    return dict(rows.values_list("handoff_id", "title"))


ACTIONS = (
    Action(
        "forge_publish",
        "Publish again",
        "told to publish again",
        ("handoff", "handoffs"),
        lambda handoff_id: {"handoff_id": handoff_id},
        _titles,
    ),
    Action(
        "forge_disconnect",
        "Disconnect",
        "disconnected",
        ("forge", "forges"),
        lambda forge_id: {"forge_id": forge_id},
        _repositories,
        danger=True,
    ),
)
