from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nexus.core.apps import NexusAppConfig


class CoordinationConfig(NexusAppConfig):
    name = "coordination"
    declared_in = ("operations.agents", "operations.events", "operations.artifacts")
    clock_columns = {"artifacts": "created_at", "events": "created_at", "sessions": "last_heartbeat_at"}
    commands = {
        "agent_create": "nexus agents create",
        "agent_register": "nexus agents create",
        "agent_update": "nexus agents update",
        "agent_delete": "nexus agents delete",
        "agent_key_issue": "nexus agents key",
        "agent_key_set_active": "nexus agents key",
        "agent_list": "nexus agents",
        "agent_mute": "nexus mute",
        "agent_get": "nexus agents show",
        "workspace_list": "nexus workspaces",
        "workspace_resolve": "nexus workspaces show",
        "workspace_move": "nexus workspaces move",
        "artifact_list": "nexus artifacts",
        "artifact_get": "nexus artifacts show",
        "tag_list": "nexus tags",
        "tag_create": "nexus tags create",
        "tag_delete": "nexus tags delete",
        "settings_list": "nexus settings",
        "settings_update": "nexus settings set",
        "operator_create": "nexus operators create",
        "operator_password_reset": "nexus operators reset-password",
    }
    words = {"artifact_put": "an agent"}

    def ready(self) -> None:
        from coordination import clock_repair, selectors
        from coordination.log import selectors as log
        from coordination.models import Event
        from coordination.services import agent_limits, agents, audit
        from coordination.services import settings as stored_settings
        from coordination.toolset import COORDINATION
        from nexus.core import domain
        from nexus.core.database.store import keep_triggers
        from nexus.core.logs import redact_logs

        redact_logs()
        keep_triggers()
        domain.register(
            domain.Domain(
                log=Event,
                credential_of_key=agents.hash_secret,
                agent_of_credential=selectors.agent_of_key_hash,
                toolsets_of=selectors.toolsets_of,
                check_allowed=agent_limits.check_allowed,
                acting=audit.acting,
                refresh_settings=stored_settings.refresh,
                newest_event_id=log.newest_event_id,
                keys_of=log.keys_of,
                events_after=log.events_after,
            )
        )
        clock_repair.register(  # presence begins with a heartbeat, and one in the future is not valid
            "sessions", "sessions", "last_heartbeat_at", lambda: 0, among="status = 'active'"
        )
        clock_repair.register("agents", "agents", "last_seen_at", lambda: 0)
        clock_repair.register("connected_agents", "agents", "connected_at", lambda: 0)
        COORDINATION.administered_in("coordination.operations.administration")
        super().ready()

    def connection_state(self, connection: str) -> Any:
        from nexus.core.operations.caller import joined_as

        return joined_as(connection)

    def restore_connection(self, connection: str, state: Any) -> None:
        from nexus.core.operations.caller import Joined, remember

        if not (isinstance(state, list) and len(state) in (2, 3) and all(isinstance(each, str) for each in state)):
            raise ValueError("an agent, its project, and its session")
        remember(connection, Joined(*state))

    def websocket_routes(self) -> Sequence[Any]:
        from coordination.log.consumers import websocket_routes

        return websocket_routes

    def openapi_paths(self) -> Mapping[str, Any]:
        from coordination.log.consumers import openapi

        return openapi()
