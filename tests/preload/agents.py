"""The apps that an agent's process has, and what it serves with."""

from tests.preload import nexus

nexus(
    "runmcp",
    """
    core.database.sqlite.backend.base maintenance.retention maintenance.store_file mcp_bridge.server mcp_bridge.stdio
    """,
)
