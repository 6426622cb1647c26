"""Agents' API keys: issued by an operator, or lent to a process that acts as the agent; shown once, stored as a hash
(docs/explanation/trust.md)."""

from __future__ import annotations

import secrets
from datetime import datetime

from coordination.models import AgentKey, LentKey
from coordination.selectors import require_agent
from coordination.services import agents, audit
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.operations.errors import not_found


def issue(*, agent_id: str, operator: str) -> str:
    """Return a new key for an agent; its old key stops working in the same transaction. Raises NOT_FOUND for an
    unknown agent."""
    moment = now()
    with write():
        require_agent(agent_id)
        key, had_one = replace(agent_id, moment)
        audit.record(operator, "agent.key_regenerated" if had_one else "agent.key_issued", moment, agent_id=agent_id)
    return key


def replace(agent_id: str, moment: datetime) -> tuple[str, bool]:
    """Make a key inside the caller's transaction; return it, and whether it replaced another."""
    key = _new()
    _, created = AgentKey.objects.update_or_create(
        agent_id=agent_id,
        defaults={"key_hash": agents.hash_secret(key), "is_active": True, "created_at": moment},
    )
    return key, not created


def lend(*, agent_id: str) -> str:
    """Return a temporary key for a process of an agent, in addition to the agent's own. Raises NOT_FOUND for an
    unknown agent."""
    key = _new()
    with write():
        require_agent(agent_id)
        LentKey.objects.create(key_hash=agents.hash_secret(key), agent_id=agent_id, created_at=now())
    return key


def revoke_lent(key: str) -> None:
    """Revoke a lent key."""
    with write():
        LentKey.objects.filter(pk=agents.hash_secret(key)).delete()


def revoke_all_lent(*, agent_id: str) -> None:
    """Revoke all keys that were lent to an agent's processes."""
    with write():
        LentKey.objects.filter(agent_id=agent_id).delete()


def retire(*, agent_id: str, operator: str) -> None:
    """Deactivate an agent's key where it has one, and revoke its lent keys."""
    with write():
        revoke_all_lent(agent_id=agent_id)
        if AgentKey.objects.filter(agent_id=agent_id, is_active=True).exists():
            set_active(agent_id=agent_id, active=False, operator=operator)


def set_active(*, agent_id: str, active: bool, operator: str) -> AgentKey:
    """Deactivate an agent's key, or reactivate the same key.

    Deactivation also revokes the keys lent to its processes. A key that is already in this state stays as it is. Raises
    NOT_FOUND for an agent without a key.
    """
    moment = now()
    with write():
        key = AgentKey.objects.filter(agent_id=agent_id).first()
        if key is None:
            raise not_found("key of agent", agent_id)
        if key.is_active != active:
            key.is_active = active
            key.save(update_fields=["is_active"])
            if not active:
                revoke_all_lent(agent_id=agent_id)
            audit.record(
                operator, "agent.key_reactivated" if active else "agent.key_deactivated", moment, agent_id=agent_id
            )
    return key


def _new() -> str:
    return f"nxs_{secrets.token_hex(24)}"
