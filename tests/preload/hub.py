"""All apps, and what the hub serves with: all that `nexus_site.asgi` imports, for it makes the application itself."""

from tests.preload import nexus

nexus(
    "serve",
    """
    nexus.control.rpc.endpoint nexus.control.rpc.websocket nexus.control.worker.store_access
    nexus.control.worker.supervision coordination.log.consumers
    nexus.maintenance.attention nexus.core.database.sqlite.backend.base
    nexus.web.login nexus.web.middleware nexus.dashboard.views.home
    django.contrib.messages.storage.fallback nexus.hooks.webhooks nexus.maintenance.reaper
    nexus.maintenance.store_file mcp_bridge.http
    nexus_site.serving.metrics nexus_site.serving.middleware nexus_site.serving.django nexus_site.serving.middleware
    nexus_site.urls nexus.topics.embedding.background
    """,
)
