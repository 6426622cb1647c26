"""Emptying of the database, after an operator's confirmation."""

from __future__ import annotations

from django.db import connection

from coordination.models import Agent, AgentKey, RetentionPass, StoredSetting
from coordination.services import audit
from inbox import search
from nexus.core.apps import nexus_apps
from nexus.core.clock import now
from nexus.core.database.store import write

ALWAYS_KEPT = (StoredSetting,)  # settings belong to the hub
IDENTITIES = (Agent, AgentKey)


def reset(*, keep_agents: bool, operator: str) -> int:
    """Delete every row of Nexus's own tables and return their number.

    Operators' accounts and stored settings stay, and agents with their keys if asked. Event ids continue, so that new
    events come after a follower's cursor. The first event of the empty log says who did it.
    """
    kept = {*ALWAYS_KEPT, *(IDENTITIES if keep_agents else ())}
    models = [model for app in nexus_apps() for model in app.get_models()]
    gone = 0
    with write(), connection.cursor() as cursor:
        RetentionPass.objects.create()
        with search.emptied():
            for model in models:
                if model not in kept and model is not RetentionPass:
                    cursor.execute(f"DELETE FROM {connection.ops.quote_name(model._meta.db_table)}")  # noqa: S608
                    gone += cursor.rowcount
        RetentionPass.objects.all().delete()
        audit.record(operator, "database.reset", now(), rows=gone, kept_agents=keep_agents)
    return gone
