"""Who started the agents of the pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any

from django.db.models import Q

from nexus.control.models import PoolAgent
from nexus.control.permissions.rules import DEEPEST
from nexus.core.contributions import StartedBy
from nexus.core.database.prepared import Select, Slot

MOST = 1000  # agents that had the names in this time, the newest first: a name may be taken again and again
ABOVE = tuple("parent__" * level for level in range(DEEPEST + 1))  # the agent and all that can be above it
COLUMNS = [f"{above}{column}" for above in ABOVE for column in ("agent_id", "created_by", "parent_id")]


def starters(senders: Collection[tuple[str, datetime]]) -> Mapping[tuple[str, datetime], StartedBy]:
    """Return who started these agents, each as it was at a moment, in one query. Who is unknown is left out.

    What is read never changes, and stays after the agent has ended until retention deletes its row.
    """
    sent = defaultdict(list)
    for name, moment in senders:
        sent[name].append(moment)
    moments = [moment for _, moment in senders]
    named = dict(enumerate(sent))
    slots = {f"name_{number}": named.get(number, "") for number in range(1 << (len(sent) - 1).bit_length())}
    found: dict[tuple[str, datetime], StartedBy] = {}
    for begun, ended, *line in _select(len(slots))(MOST, since=min(moments), until=max(moments), **slots):
        if started_by := _started_by(line):
            for moment in sent[line[0]]:
                if begun <= moment and (ended is None or moment <= ended):
                    found.setdefault((line[0], moment), started_by)
    return found


@cache
def _select(names: int) -> Select[tuple[Any, ...]]:
    """Select the agents that had one of so many names in a time. There is one for each power of two."""
    there = Q(ended_at=None) | Q(ended_at__gte=Slot("since"))
    slots = [Slot(f"name_{number}") for number in range(names)]
    return Select(
        lambda: (
            PoolAgent.objects.filter(there, agent_id__in=slots, created_at__lte=Slot("until"))
            .order_by("-created_at")
            .values_list("created_at", "ended_at", *COLUMNS)
        )
    )


def _started_by(line: Sequence[Any]) -> StartedBy | None:
    """Return who started the first of these agents, of which each is the parent of the one before; None if more are
    above it than can be.

    An agent starts agents below itself only, so that none can make a start look like an operator's.
    """
    if line[-1] is not None:
        return None
    above = [agent_id for agent_id in line[3::3] if agent_id is not None]
    makers = line[1::3]
    count = next(level for level, maker in enumerate(makers) if level == len(above) or maker != above[level])
    return StartedBy(above[:count], makers[count], above[-1] if count < len(above) else None)
