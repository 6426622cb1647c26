"""Records and notices of commits and pushes in which a person overrides the guard."""

from __future__ import annotations

from collections.abc import Sequence

from coordination.log.emit import emit
from inbox import services as mail
from nexus.core.clock import now
from nexus.core.database.store import write
from nexus.core.limits import within_limit
from nexus.core.operations.caller import OPERATOR_AGENT
from nexus.core.operations.errors import not_found
from nexus.reservations.models import STREAM, Reservation

NAMED = 20  # files that an event or a message names; the rest is counted


def record(*, reservation_ids: Sequence[str], paths: Sequence[str], verb: str, reason: str, operator: str) -> list[str]:
    """Record a commit or a push of files that agents hold, and notify these agents; return them.

    Raises NOT_FOUND and CONTENT_TOO_LARGE.
    """
    within_limit(reason, "reason")
    names = ", ".join(paths[:NAMED]) + (f" and {len(paths) - NAMED} more" if len(paths) > NAMED else "")
    with write():
        moment = now()
        known = Reservation.objects.in_bulk(list(reservation_ids))
        for reservation_id in reservation_ids:
            if reservation_id not in known:
                raise not_found("reservation", reservation_id)
        holders = sorted({(row.workspace_id, row.agent_id, row.handoff_id or "") for row in known.values()})
        for workspace_id, holder, handoff_id in holders:
            emit(
                workspace_id=workspace_id,
                stream=STREAM,
                type="file.overridden",
                actor=None,
                payload={
                    "operator": operator,
                    "verb": verb,
                    "reason": reason,
                    "holder": holder,
                    "paths": list(paths[:NAMED]),
                    "count": len(paths),
                },
                moment=moment,
                handoff_id=handoff_id or None,
            )
        for workspace_id, holder in dict.fromkeys(each[:2] for each in holders):
            mail.notify(
                workspace_id=workspace_id,
                from_agent_id=OPERATOR_AGENT,
                recipient=holder,
                subject=f"A {verb} overrode your reservation",
                body=f"{operator} gave this reason: {reason}\n\nSome of these files are yours: {names}",
                moment=moment,
            )
    return list(dict.fromkeys(holder for _, holder, _ in holders))
