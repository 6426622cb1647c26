"""The statements of handoffs that nearly every step, or act of a holder, runs."""

from __future__ import annotations

from datetime import datetime

from handoffs.models import Handoff
from nexus.core.database.sql import Read, Write

find: Read[Handoff] = Read("SELECT {h} FROM handoffs h WHERE handoff_id = %(handoff_id)s", h=Handoff)
task_of: Read[tuple[str | None]] = Read("SELECT task_key FROM handoffs WHERE handoff_id = %(handoff_id)s")

# Whether a lease or a deadline in a workspace has passed.
due: Read[tuple[int]] = Read("""
    SELECT 1 FROM handoffs WHERE workspace_id = %(workspace_id)s
        AND (lease_expires_at < %(moment)s OR status = 'OPEN' AND deadline_at < %(moment)s)
    LIMIT 1
""")
claim = Write("""
    UPDATE handoffs SET status = 'CLAIMED', claimed_by = %(agent_id)s, claimed_at = %(moment)s,
        lease_seconds = %(lease_seconds)s, lease_expires_at = %(lease)s, claim_epoch = claim_epoch + 1,
        updated_at = %(moment)s
    WHERE handoff_id = %(handoff_id)s AND workspace_id = %(workspace_id)s AND status = 'OPEN'
        AND (deadline_at IS NULL OR deadline_at >= %(moment)s)
        AND NOT EXISTS (SELECT 1 FROM handoff_dependencies d WHERE d.handoff_id = handoffs.handoff_id AND NOT d.done)
""")
move = Write("""
    UPDATE handoffs SET status = %(status)s, blocked_reason = %(blocked_reason)s, updated_at = %(moment)s
    WHERE handoff_id = %(handoff_id)s AND status = %(former)s AND claimed_by = %(claimed_by)s
        AND claim_epoch = %(claim_epoch)s AND lease_expires_at >= %(moment)s
""")
end = Write("""
    UPDATE handoffs SET status = %(status)s, result = %(result)s, rejected_reason = %(rejected_reason)s,
        blocked_reason = NULL, lease_expires_at = NULL, updated_at = %(moment)s
    WHERE handoff_id = %(handoff_id)s AND status = %(former)s AND claim_epoch = %(claim_epoch)s
        AND (claimed_by = %(claimed_by)s OR claimed_by IS NULL)
""")
mark_done = Write("UPDATE handoff_dependencies SET done = TRUE WHERE depends_on_id = %(handoff_id)s")

running: Read[tuple[str, int | None, datetime]] = Read(
    """
    SELECT {h.handoff_id}, {h.lease_seconds}, {h.lease_expires_at} FROM handoffs h
    WHERE claimed_by = %(agent_id)s AND lease_expires_at >= %(moment)s
    """,
    h=Handoff,
)
# Not where it ended, lapsed or was extended since it was read.
renew = Write("""
    UPDATE handoffs SET lease_expires_at = %(until)s
    WHERE handoff_id = %(handoff_id)s AND claimed_by = %(agent_id)s AND lease_expires_at = %(read)s
""")
