"""The statements of agents, sessions and the log that nearly every call runs."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import Any

from coordination.models import Agent, Event, Session
from nexus.core.database.sql import Read, Write

_AGENT = "FROM agents a WHERE agent_id = %(agent_id)s AND deleted_at IS NULL"
known_agent: Read[tuple[int]] = Read(f"SELECT 1 {_AGENT}")
known_workspace: Read[tuple[int]] = Read("SELECT 1 FROM workspaces WHERE workspace_id = %(workspace_id)s")
profile: Read[tuple[str, str | None, str | None, str | None]] = Read(
    f"SELECT agent_id, role, capabilities, tags {_AGENT}"
)
toolsets: Read[list[str] | None] = Read(f"SELECT {{a.toolsets}} {_AGENT}", a=Agent)
last_seen: Read[Any] = Read(f"SELECT {{a.last_seen_at}} {_AGENT}", a=Agent)
see = Write("UPDATE agents SET last_seen_at = %(moment)s WHERE agent_id = %(agent_id)s AND deleted_at IS NULL")

issued_key: Read[tuple[str]] = Read("SELECT agent_id FROM agent_keys WHERE key_hash = %(key_hash)s AND is_active")
lent_key: Read[tuple[str]] = Read("SELECT agent_id FROM lent_keys WHERE key_hash = %(key_hash)s")

# Whoever has an open session in a workspace, and whether its last heartbeat is after `horizon`.
presence: Read[tuple[str, bool]] = Read("""
    SELECT agent_id, max(last_heartbeat_at) >= %(horizon)s FROM sessions
    WHERE workspace_id = %(workspace_id)s AND status = 'active' GROUP BY agent_id ORDER BY agent_id
""")
session: Read[Session] = Read("SELECT {s} FROM sessions s WHERE session_id = %(session_id)s", s=Session)
silent_in: Read[Session] = Read(
    """
    SELECT {s} FROM sessions s WHERE workspace_id = %(workspace_id)s AND status = 'active'
        AND last_heartbeat_at < %(horizon)s
    ORDER BY last_heartbeat_at LIMIT %(limit)s
    """,
    s=Session,
)
# Whether the client of an agent tells what it does.
tells: Read[tuple[int]] = Read("SELECT 1 FROM sessions WHERE agent_id = %(agent_id)s AND activity IS NOT NULL LIMIT 1")
beat = Write(
    "UPDATE sessions SET last_heartbeat_at = %(moment)s WHERE session_id = %(session_id)s AND status = 'active'"
)

events_after: Read[Event] = Read(
    "SELECT {e} FROM events e WHERE event_id > %(event_id)s ORDER BY event_id LIMIT %(limit)s", e=Event
)
last_of_stream: Read[tuple[int]] = Read("""
    SELECT event_id FROM events WHERE workspace_id = %(workspace_id)s AND stream = %(stream)s AND event_id > %(after)s
    ORDER BY event_id LIMIT 1 OFFSET %(skipped)s
""")


@cache
def newest_event(columns: Collection[str]) -> Read[tuple[int]]:
    """Return the read of the id of the newest event with these columns."""
    return Read(f"SELECT event_id FROM events WHERE {_with(columns)} ORDER BY event_id DESC LIMIT 1")


@cache
def events_with(columns: Collection[str]) -> Read[Event]:
    """Return the read of the events with these columns after one id, up to another."""
    return Read(
        f"""
        SELECT {{e}} FROM events e WHERE {_with(columns)} AND event_id > %(after)s AND event_id <= %(head)s
        ORDER BY event_id LIMIT %(limit)s
        """,
        e=Event,
    )


def _with(columns: Collection[str]) -> str:
    return " AND ".join([f"{name} = %({name})s" for name in columns] or ["TRUE"])
