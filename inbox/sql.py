"""The statements of the inbox that nearly every call runs."""

from __future__ import annotations

from coordination.models import Workspace
from inbox.models import Delivery, Message
from nexus.core.database.sql import Read, Write


def _head(status: str) -> str:
    return f"""
        SELECT * FROM (
            SELECT {{d}}, {{m}}, {{w}} FROM message_deliveries d
            JOIN messages m ON m.message_id = d.message_id JOIN workspaces w ON w.number = m.workspace_id
            WHERE d.recipient_agent_id = %(agent_id)s AND d.status = {status} ORDER BY d.delivery_id LIMIT %(limit)s
        ) head
    """


# The oldest deliveries that are unread, and those whose lease has lapsed, each along its index, with their messages.
claimable: Read[tuple[Delivery, Message, Workspace]] = Read(
    " UNION ALL ".join(map(_head, ("'unread'", "'delivered' AND d.lease_expires_at < %(moment)s"))),
    d=Delivery,
    m=Message,
    w=Workspace,
)

_OF = "(SELECT count(*) FROM message_deliveries WHERE recipient_agent_id = %(agent_id)s AND status = "
# Each count along its index; none for an agent that never registered.
sizes: Read[tuple[int, int, int, int]] = Read(f"""
    SELECT {_OF} 'unread'), {_OF} 'delivered' AND lease_expires_at < %(moment)s),
        {_OF} 'delivered' AND lease_expires_at >= %(moment)s), {_OF} 'read')
    FROM agents WHERE agent_id = %(agent_id)s
""")

_CLAIMABLE = """
    WHERE delivery_id = %(delivery_id)s AND attempts = %(attempts)s
        AND (status = 'unread' OR status = 'delivered' AND lease_expires_at < %(moment)s)
"""
lease = Write(f"""
    UPDATE message_deliveries SET status = 'delivered', attempts = attempts + 1, delivered_at = %(moment)s,
        delivered_to = %(by)s, lease_expires_at = %(until)s {_CLAIMABLE}
""")
park = Write(f"UPDATE message_deliveries SET status = 'parked', lease_expires_at = NULL {_CLAIMABLE}")
settle = Write("""
    UPDATE message_deliveries SET status = 'read', read_at = %(moment)s, read_by = %(by)s, lease_expires_at = NULL
    WHERE recipient_agent_id = %(agent_id)s AND message_id = %(message_id)s AND status <> 'read'
""")
