"""The look-ups that nearly every call makes."""

from __future__ import annotations

from coordination.models import Agent, AgentKey, Workspace
from core.database.prepared import Lookup

agent_exists = Lookup(Agent.objects.all)  # deleted ones do not count: the manager leaves them out
workspace_exists = Lookup(Workspace.objects.all)
agent_of_key_hash = Lookup(lambda: AgentKey.objects.filter(is_active=True), by="key_hash", column="agent_id")
