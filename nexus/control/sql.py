"""The statements of the pool that an agent's calls run, whether it is of the pool or not."""

from __future__ import annotations

from collections.abc import Collection

from django.db import connection

from nexus.control.models import PoolAgent
from nexus.core.database.sql import Read

is_living: Read[str] = Read(
    "SELECT {a.pool_agent_id} FROM pool_agents a WHERE pool_agent_id = %(pk)s AND ended_at IS NULL", a=PoolAgent
)
ceilings: Read[tuple[str, str]] = Read(
    "SELECT {a.preset}, {a.cwd} FROM pool_agents a WHERE agent_id = %(agent_id)s AND ended_at IS NULL", a=PoolAgent
)


def any_of_pool(names: Collection[str]) -> bool:
    """Return whether an agent of the pool has, or had, one of these names."""
    named = ", ".join(["%s"] * len(names))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM pool_agents WHERE agent_id IN ({named}) LIMIT 1", list(names))
        return bool(cursor.fetchall())
