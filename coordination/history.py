"""What of this app belongs to a workspace's history, and the states that no operation leaves behind."""

from __future__ import annotations

from coordination.models import Agent, Artifact, Channel, Event, Session, Workspace
from nexus.core.contributions import ExportKind, ImpossibleState, of_workspace

# Events come last: what indexes them for the search reads the messages they tell of. Which agents a workspace concerns
# is for the export to say: those that any kind's rows name.
KINDS = (
    ExportKind("workspace", Workspace, 10, of_workspace(Workspace, "pk")),
    ExportKind("agent", Agent, 20, lambda workspace_id: Agent._base_manager.none()),
    ExportKind("session", Session, 30, of_workspace(Session), agents=("agent_id",)),
    ExportKind("channel", Channel, 50, of_workspace(Channel)),
    ExportKind("artifact", Artifact, 90, of_workspace(Artifact), agents=("created_by",)),
    ExportKind("event", Event, 1000, of_workspace(Event), agents=("actor_agent_id",)),
)

IMPOSSIBLE = (
    ImpossibleState(
        "sessions",
        "closed without a time",
        "status = 'closed' AND closed_at IS NULL",
        "closed_at = last_heartbeat_at",
        "the time of their last heartbeat was taken",
    ),
    ImpossibleState(
        "sessions",
        "active with a time of closing",
        "status = 'active' AND closed_at IS NOT NULL",
        "closed_at = NULL",
        "the time was taken off",
    ),
)
