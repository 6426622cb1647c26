"""Who started the agents of the pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db.models import Q, QuerySet

from nexus.control import sql
from nexus.control.models import PoolAgent
from nexus.control.permissions.rules import DEEPEST
from nexus.core.contributions import StartedBy

MOST = 1000  # agents that had the names in this time, the newest first: a name may be taken again and again
ABOVE = tuple("parent__" * level for level in range(DEEPEST + 1))  # the agent and all that can be above it
COLUMNS = [f"{above}{column}" for above in ABOVE for column in ("agent_id", "created_by", "parent_id")]


def starters(senders: Collection[tuple[str, datetime]]) -> Mapping[tuple[str, datetime], StartedBy]:
    """Return who started these agents, each as it was at a moment, in two queries. Who is unknown is left out.

    What is read never changes, and stays after the agent has ended until retention deletes its row.
    """
    sent = defaultdict(list)
    for name, moment in senders:
        sent[name].append(moment)
    moments = [moment for _, moment in senders]
    found: dict[tuple[str, datetime], StartedBy] = {}
    for begun, ended, *line in _lines(sent, min(moments), max(moments)) if sql.any_of_pool(sent) else ():
        if started_by := _started_by(line):
            for moment in sent[line[0]]:
                if begun <= moment and (ended is None or moment <= ended):
                    found.setdefault((line[0], moment), started_by)
    return found


def _lines(names: Collection[str], since: datetime, until: datetime) -> QuerySet[PoolAgent, Any]:
    """Return the agents that had one of these names in a time, each with those above it."""
    rows = PoolAgent.objects.filter(
        Q(ended_at=None) | Q(ended_at__gte=since), agent_id__in=names, created_at__lte=until
    )
    return rows.order_by("-created_at").values_list("created_at", "ended_at", *COLUMNS)[:MOST]


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
