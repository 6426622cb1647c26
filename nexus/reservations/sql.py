"""The statements of reservations that nearly every act of a holder, or each pattern of a call, runs."""

from __future__ import annotations

from nexus.core.database.sql import Read, Write
from nexus.reservations.guard import holdings
from nexus.reservations.models import Reservation
from nexus.reservations.patterns import PLACE_PARTS

_KEPT = holdings.KEPT.replace("?", "%(moment)s")
_HELD = f"r.released_at IS NULL AND r.expires_at >= %(moment)s AND (r.handoff_id IS NULL OR {_KEPT})"
_ORPHANED = f"r.released_at IS NULL AND r.handoff_id IS NOT NULL AND NOT {_KEPT}"
_MINE = f"{_HELD} AND r.workspace_id = %(workspace_id)s AND r.agent_id = %(agent_id)s"

# The places above a pattern, and below it: one query for both would use no index.
_AROUND = (
    f"r.place IN ({', '.join(f'%(above_{count})s' for count in range(PLACE_PARTS + 1))})",
    "r.place > %(place)s AND r.place < %(end)s",
)
# What may overlap a pattern, by whether the pattern has an extension: different ones do not overlap.
near: dict[bool, list[Read[tuple[str, str, bool, str]]]] = {
    has_extension: [
        Read(
            f"""
            SELECT {{r.reservation_id}}, {{r.pattern}}, {{r.exclusive}}, {{r.agent_id}} FROM file_reservations r
            WHERE r.workspace_id = %(workspace_id)s AND {around}{kind} AND {_HELD}
            """,
            r=Reservation,
        )
        for around in _AROUND
    ]
    for has_extension, kind in ((False, ""), (True, " AND r.extension IN (%(extension)s, '')"))
}
own: Read[Reservation] = Read(f"SELECT {{r}} FROM file_reservations r WHERE {_MINE}", r=Reservation)
count_own: Read[tuple[int]] = Read(f"SELECT count(*) FROM file_reservations r WHERE {_MINE}")
alike: Read[Reservation] = Read(
    f"""
    SELECT {{r}} FROM file_reservations r
    WHERE {_MINE} AND r.place = %(place)s AND r.pattern = %(pattern)s AND r.exclusive = %(exclusive)s
    """,
    r=Reservation,
)

lapsed: Read[tuple[int]] = Read(
    "SELECT 1 FROM file_reservations WHERE released_at IS NULL AND expires_at < %(moment)s LIMIT 1"
)
# Whether something ended in a workspace since a moment, and nobody has recorded it.
ended: Read[tuple[bool]] = Read(f"""
    SELECT EXISTS (
        SELECT 1 FROM file_reservations WHERE workspace_id = %(workspace_id)s AND released_at IS NULL
            AND expires_at >= %(since)s AND expires_at < %(moment)s
    ) OR EXISTS (
        SELECT 1 FROM file_reservations r
        WHERE r.workspace_id = %(workspace_id)s AND r.expires_at >= %(moment)s AND {_ORPHANED}
    )
""")
orphaned: Read[Reservation] = Read(
    f"SELECT {{r}} FROM file_reservations r WHERE r.handoff_id = %(handoff_id)s AND {_ORPHANED}", r=Reservation
)

lengths: Read[tuple[int]] = Read("""
    SELECT DISTINCT seconds FROM file_reservations
    WHERE agent_id = %(agent_id)s AND released_at IS NULL AND expires_at >= %(moment)s
""")
renew = Write("""
    UPDATE file_reservations AS r SET expires_at = %(until)s
    WHERE r.agent_id = %(agent_id)s AND r.seconds = %(seconds)s AND r.released_at IS NULL
        AND r.expires_at >= %(moment)s AND r.expires_at < %(due)s
        AND (r.handoff_id IS NULL OR EXISTS (
            SELECT 1 FROM handoffs h
            WHERE h.handoff_id = r.handoff_id AND h.claimed_by = r.agent_id AND h.lease_expires_at >= %(moment)s
        ))
""")  # those of a submitted handoff run out
prolong = Write("""
    UPDATE file_reservations SET expires_at = %(until)s, seconds = %(seconds)s
    WHERE reservation_id = %(reservation_id)s AND released_at IS NULL
""")
end = Write("""
    UPDATE file_reservations SET released_at = %(moment)s, outcome = %(outcome)s
    WHERE reservation_id = %(reservation_id)s AND released_at IS NULL
""")
