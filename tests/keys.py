"""What a key opens."""

from __future__ import annotations

from nexus.core.domain import domain


def agent_of_key(key: str) -> str | None:
    """The agent that it is for; None when it is unknown or deactivated."""
    return domain().agent_of_credential(domain().credential_of_key(key))
