"""What this app offers: identity, workspaces, sessions, events, channels, artifacts and shared.md.

The order is the one in which agents are shown the tools.
"""

from coordination.operations import (  # noqa: F401, I001  # each registers its operations
    info,
    joining,
    workspaces,
    agents,
    sessions,
    events,
    channels,
    artifacts,
    shared_md,
)
from coordination.toolset import COORDINATION

COORDINATION.administered_in(*(f"{__name__}.{module}" for module in ("administration", "limits", "figures")))
