from __future__ import annotations

from core.apps import NexusAppConfig


class NexusSiteConfig(NexusAppConfig):
    name = "nexus_site"
