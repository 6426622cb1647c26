"""What the sidebar and the help say of connected forges."""

from __future__ import annotations

from nexus.core.contributions import Page
from nexus.forges.models import Forge

PAGES = (
    Page(
        "forges_forge_changelist",
        title="Forges",
        icon="merge",
        section="Hub",
        about="Repositories on GitHub and GitLab whose issues agents work on, and git remotes for their work.",
        position=5,
        in_use=Forge.objects.exists,
    ),
)
