from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from core.apps import NexusAppConfig


class FilesConfig(NexusAppConfig):
    name = "files"

    def ready(self) -> None:
        import_module("files.toolset")  # which names what declares its operations

    def streams(self) -> Mapping[str, str]:
        from files.models import STREAM

        return {STREAM: "who reserved which files"}

    def event_types(self) -> Sequence[str]:
        return [f"file.{what}" for what in "reserved extended released expired refused asked overridden".split()]
