from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from core.apps import NexusAppConfig


class FilesConfig(NexusAppConfig):
    name = "files"

    def ready(self) -> None:
        from coordination import renewal
        from coordination.log.emit import committed

        import_module("files.toolset")  # which names what declares its operations
        renewal.register("files", lambda agent_id, moment: import_module("files.services").renew(agent_id, moment))
        committed.connect(settle)

    def streams(self) -> Mapping[str, str]:
        from files.models import STREAM

        return {STREAM: "who reserved which files"}

    def event_types(self) -> Sequence[str]:
        return [f"file.{what}" for what in "reserved extended released expired asked overridden".split()]


def settle(sender: object, event: Any, **_: object) -> None:
    """What was reserved for a handoff ends with its holder's claim on it."""
    if event.handoff_id is not None and event.stream == "handoff":
        import_module("files.services").settle(event.handoff_id)
