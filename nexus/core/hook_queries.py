"""What `nexus hook` asks of the store without Django: SQL that apps register, each in its module `hook_queries`."""

from __future__ import annotations

from typing import NamedTuple


class HookQuery(NamedTuple):
    """Queries for the ids of what waits for `:agent`, and for the keys of what it owes (`coordination.debts`); and a
    table that is there once they can be asked."""

    table: str
    waiting: str = ""
    owed: str = ""


HOOK_QUERIES: list[HookQuery] = []
