from __future__ import annotations

from nexus.core.apps import NexusAppConfig


class WebConfig(NexusAppConfig):
    name = "nexus.web"
