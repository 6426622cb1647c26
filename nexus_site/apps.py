from __future__ import annotations

from nexus.core.apps import NexusAppConfig


class NexusSiteConfig(NexusAppConfig):
    name = "nexus_site"
