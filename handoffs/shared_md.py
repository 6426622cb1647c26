"""The section of handoffs in shared.md."""

from __future__ import annotations

import json

from coordination.routing import Visibility
from coordination.shared_md import one_line, section
from handoffs.models import Handoff
from nexus.core.clock import iso


@section(3, "Open handoffs")
def _handoffs(workspace_id: str, limit_events: int) -> list[str]:
    rows = Handoff.objects.open().filter(workspace_id=workspace_id).order_by("created_event_id")
    return [
        f"- {_title(row)}{row.handoff_id} from {one_line(row.from_agent_id)} for {_target(row)}, "
        f"since {iso(row.created_at)}"
        for row in rows
    ]


def _title(row: Handoff) -> str:
    """Return the title of a public handoff, and nothing of any other: shared.md is public."""
    return f"{one_line(row.title)}: " if row.visibility == Visibility.PUBLIC else ""


def _target(row: Handoff) -> str:
    """Return the target of a public handoff, and a placeholder for any other: shared.md is public."""
    if row.visibility != Visibility.PUBLIC:
        return "[private]"
    return one_line(json.dumps(row.target, ensure_ascii=False, sort_keys=True))
