"""A quick check of the store without Django, whose start takes longer than a hook may: is anything waiting?

It only decides whether to start Django; the operations make the texts for the agent. SQLite's own SQL is used only
here; for a store on a server there is `nexus.hooks.store_queries`.
"""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from coordination.paths import workspace_id_of
from coordination.routing import (
    Profile,
    can_see,
    capability_set,
    is_directed,
    is_eligible,
    next_opening,
    stored_target,
    tag_set,
)
from nexus.core import read_only
from nexus.core.harness_events import HOOK_QUERIES
from nexus.core.sqlite import connect

MESSAGES = """
SELECT message_id, target FROM message_deliveries JOIN messages USING (message_id)
WHERE recipient_agent_id = :agent
  AND (status = 'unread' OR (status = 'delivered' AND lease_expires_at < :now))
LIMIT 1000
"""
LEASES = """
SELECT min(lease_expires_at) FROM message_deliveries WHERE recipient_agent_id = :agent AND status = 'delivered'
UNION ALL SELECT min(lease_expires_at) FROM handoffs WHERE workspace_id = :workspace AND lease_expires_at NOTNULL
"""
HANDOFFS = """
SELECT handoff_id, target, visibility, from_agent_id, created_at FROM handoffs
WHERE workspace_id = :workspace AND (status = 'OPEN' OR lease_expires_at < :now)
  AND (deadline_at IS NULL OR deadline_at >= :now)
LIMIT 1000
"""
OWED = """
SELECT 'message ' || message_id FROM message_deliveries
WHERE recipient_agent_id = :agent AND status = 'delivered'
UNION ALL
SELECT 'handoff ' || handoff_id FROM handoffs WHERE claimed_by = :agent AND lease_expires_at >= :now
UNION ALL
SELECT 'verdict ' || handoff_id FROM workspaces CROSS JOIN handoffs USING (workspace_id)
WHERE status = 'SUBMITTED' AND claimed_by <> :agent
  AND (verifier = 'agent:' || :agent OR (verifier = 'creator' AND from_agent_id = :agent))
LIMIT 1000
"""
NEEDED = frozenset(
    ("agents", "message_deliveries", "handoffs", "handoffs.deadline_at", "handoffs.verifier", "agents.muted_until")
)
THERE = """
SELECT name FROM sqlite_master UNION ALL SELECT 'handoffs.' || name FROM pragma_table_info('handoffs')
UNION ALL SELECT 'agents.' || name FROM pragma_table_info('agents')
"""
TABLE = "SELECT 1 FROM sqlite_master WHERE name = ?"
AGENT = "SELECT role, capabilities, tags, muted_until FROM agents WHERE agent_id = :agent"


class PendingWork(NamedTuple):
    """What waits for an agent, when (unix time) time alone may next change that, its debts, if requested, and what of
    all that is for this agent itself: nothing while it is muted."""

    waiting: set[str]
    changes_at: float
    owed: frozenset[str] = frozenset()
    personal: frozenset[str] = frozenset()


def glance(database: Path, *, agent_id: str, root: str, busy_ms: int, owing: bool = False) -> PendingWork:
    """Return the ids of waiting messages and handoffs, and of items that apps registered; with `owing` also the keys of
    debts.

    Raises sqlite3.Error if the store cannot be read.
    """
    if not database.exists():
        return PendingWork(set(), float("inf"))
    now = datetime.now(UTC)
    workspace = workspace_id_of(root)
    values = {"agent": agent_id, "workspace": workspace, "now": now.strftime("%Y-%m-%d %H:%M:%S.%f")}
    with (
        read_only.address(str(database)) as url,
        closing(connect(url, uri=True, timeout=busy_ms / 1000)) as store,
    ):
        if not NEEDED.issubset(row[0] for row in store.execute(THERE)):
            return PendingWork(set(), float("inf"))  # another process is creating the store
        waiting: set[str] = set()
        personal: set[str] = set()
        for message_id, raw in store.execute(MESSAGES, values):
            waiting.add(message_id)
            if raw and is_directed(stored_target(raw), agent_id):
                personal.add(message_id)
        changes = [_moment(row[0]) for row in store.execute(LEASES, values) if row[0]]
        role, *texts, muted = store.execute(AGENT, values).fetchone() or (None, None, None, None)
        capabilities, tags = (json.loads(text or "null") for text in texts)
        agent = Profile(agent_id, role, capability_set(capabilities), tag_set(tags))
        for handoff_id, raw, visibility, actor, created in store.execute(HANDOFFS, values):
            target, created_at = stored_target(raw), _moment(created)
            if is_eligible(target, agent, created_at=created_at, now=now) and can_see(
                visibility=visibility,
                target=target,
                actor=actor,
                item_workspace=workspace,
                workspace=workspace,
                agent=agent,
                created_at=created_at,
                now=now,
            ):
                waiting.add(handoff_id)
                if is_directed(target, agent_id):
                    personal.add(handoff_id)
            elif opening := next_opening(target, created_at=created_at, now=now):
                changes.append(opening)
        there = [glance for glance in HOOK_QUERIES if store.execute(TABLE, [glance.table]).fetchone()]
        for query in filter(None, (glance.waiting for glance in there)):
            waiting.update(row[0] for row in store.execute(query, values))
        for query in filter(None, (glance.personal for glance in there)):
            personal.update(row[0] for row in store.execute(query, values))
        if muted and _moment(muted) > now:
            personal = set()
            changes.append(_moment(muted))
        owed: set[str] = set()
        for query in filter(None, (OWED, *(glance.owed for glance in there)) if owing else ()):
            owed.update(row[0] for row in store.execute(query, values))
    # A lease expires just after its end.
    changes_at = min((moment.timestamp() for moment in changes), default=float("inf")) + 0.001
    return PendingWork(waiting, changes_at, frozenset(owed), frozenset(waiting & personal))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
