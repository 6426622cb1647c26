"""The statements that each recorded write of a relay runs."""

from __future__ import annotations

from mcp_bridge.models import RecordedCall
from nexus.core.database.sql import Read, Write

find: Read[RecordedCall] = Read("SELECT {c} FROM mcp_recorded_calls c WHERE slot = %(slot)s", c=RecordedCall)
replace = Write("""
    UPDATE mcp_recorded_calls SET key = %(key)s, stage = %(stage)s, answer = %(answer)s, recorded_at = %(recorded_at)s
    WHERE slot = %(slot)s AND NOT (key = %(key)s AND stage >= %(stage)s)
""")
