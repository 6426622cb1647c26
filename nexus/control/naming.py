"""What agents of the pool may be called: total functions over texts."""

from __future__ import annotations

import re

LONGEST = 62  # characters, without the leading dot of a temporary agent
FORM = re.compile(rf"\.?[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{LONGEST - 1}}}")


def is_valid(agent_id: str) -> bool:
    """Whether this may be an agent's id: letters, digits, `_`, `-` and `.`, and no part of a path."""
    return FORM.fullmatch(agent_id) is not None and ".." not in agent_id


def is_temporary(agent_id: str) -> bool:
    """Whether an agent of this name ends with the server."""
    return agent_id.startswith(".")
