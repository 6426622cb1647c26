"""All apps, and what the hub serves with: all that `nexus_site.asgi` imports, for it makes the application itself."""

from tests.preload import nexus

nexus(
    "serve",
    """
    control.rpc.endpoint control.websocket control.worker.alone control.worker.supervision coordination.log.websocket
    core.attention core.database.sqlite.backend.base dashboard.login dashboard.middleware dashboard.pages.home
    django.contrib.messages.storage.fallback hooks.worker maintenance.reaper maintenance.store_file mcp_bridge.http
    nexus_site.serving.metrics nexus_site.serving.proxies nexus_site.serving.static_files nexus_site.serving.turns
    nexus_site.urls topics.embedding.worker
    """,
)
