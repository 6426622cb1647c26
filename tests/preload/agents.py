"""The apps that an agent's process has, and what it serves with."""

from tests.preload import nexus

nexus(
    "runmcp",
    """
    nexus.core.database.sqlite.backend.base nexus.maintenance.retention nexus.maintenance.store_file
    mcp_bridge.server mcp_bridge.stdio
    """,
)
