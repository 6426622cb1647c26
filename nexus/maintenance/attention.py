"""A disk that is almost full needs an operator."""

from __future__ import annotations

from typing import Any

from nexus.core.contributions import AttentionItem, AttentionKind, Items
from nexus.core.database.base import DISK_LOW
from nexus.core.database.store import store


def _disk(picture: Any, each: int) -> Items:
    used = store().disk_used()
    low = used >= DISK_LOW
    return Items(int(low), [AttentionItem("The disk is almost full", f"{used:.0%} used")] if low else [])


KINDS = (
    AttentionKind(
        "disk",
        "The disk",
        "hard_drive",
        0,
        _disk,
        bad=True,
        page="retention",
        look="Prune",
        command="nexus prune --vacuum",
    ),
)
