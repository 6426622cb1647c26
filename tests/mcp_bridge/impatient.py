"""`nexus`, whose relay does not wait long for a hub that is away."""

from mcp_bridge import relay
from nexus_site.launch import main

relay.AWAY_SECONDS = 0.2
main()
