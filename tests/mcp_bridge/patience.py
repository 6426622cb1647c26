"""`nexus`, whose relay waits for a hub that is away as long as a test says."""

import os

from mcp_bridge import relay
from nexus_site.launch import main

relay.AWAY_SECONDS = float(os.environ["AWAY_SECONDS"])
main()
