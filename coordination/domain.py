"""What this app provides to `nexus.core`: credentials, the operators' trail, the stored settings, the event log."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from coordination import overlong
from coordination.log.selectors import events_after, keys_of, newest_event_id
from coordination.models import Event
from coordination.selectors import agent_of_key_hash, toolsets_of
from coordination.services import agents, audit, limits
from coordination.services import settings as stored_settings
from nexus.core.operations.registry import Operation


class Coordination:
    """The domain that every process of Nexus uses."""

    log = Event

    def credential_of_key(self, key: str) -> str:
        return agents.hash_secret(key)

    def agent_of_credential(self, credential: str) -> str | None:
        return agent_of_key_hash(credential)

    def toolsets_of(self, agent_id: str) -> Sequence[str] | None:
        return cast("Sequence[str] | None", toolsets_of(agent_id))

    def check_allowed(self, agent_id: str, operation: Operation[Any]) -> None:
        limits.check_allowed(agent_id, operation)

    def acting(self, operator: str | None, operation: str, **ids: str) -> AbstractContextManager[dict[str, str]]:
        return audit.acting(operator, operation, **ids)

    def refresh_settings(self) -> None:
        if stored_settings.refresh():
            overlong.end_overlong()

    def newest_event_id(self) -> int:
        return newest_event_id()

    def keys_of(self, event: Event) -> Collection[Hashable]:
        return keys_of(event)

    def events_after(self, event_id: int, limit: int) -> Sequence[Event]:
        return events_after(event_id, limit)
