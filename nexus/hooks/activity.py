"""What a call of a client's hook says its agent does. Standard library alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nexus.core.coding_clients import HARNESSES, PROMPT, SESSION_START, STOP, TOOL_USED
from nexus.core.harness_events import Activity
from nexus.hooks.harness import HookCall

AT_EVENTS = {
    SESSION_START: Activity.IDLE,
    PROMPT: Activity.WORKING,
    TOOL_USED: Activity.WORKING,
    STOP: Activity.IDLE,
}
# By the client's word for what a person is notified of; any other says nothing.
NOTIFICATIONS = {
    "permission_prompt": Activity.ASKS,
    "elicitation_dialog": Activity.ASKS,
    "agent_needs_input": Activity.ASKS,
    "ToolPermission": Activity.ASKS,
    "idle_prompt": Activity.IDLE,  # also after its person interrupted it, which no other event tells
}
# Why a turn failed; after any other error the agent is idle.
ERRORS = {
    "rate_limit": Activity.OUT_OF_QUOTA,
    "billing_error": Activity.OUT_OF_QUOTA,
    "authentication_failed": Activity.ASKS,
}
RESTARTED = ("clear", "resume")  # reasons of a session's end that another session follows
DAY, HOUR = r"([A-Z][a-z]{2}) (\d{1,2})(?:,| at) ", r"(1[0-2]|[1-9])(?::(\d\d))?([ap])m"
RESETS = rf"resets (?:at )?(?:{DAY})?{HOUR} \(([A-Za-z0-9_+/-]{{1,64}})\)"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def told_activity(call: HookCall, known: str) -> Activity | None:
    """Return what the agent does from this call on; None if the call does not say. `known` is what it did before."""
    if call.event is None:
        return _aside(HARNESSES[call.client].activities.get(call.name or ""), call.payload)
    if call.payload.get("source") == "compact":  # the session goes on as before
        return Activity.WORKING if known == Activity.COMPACTING else None
    found = AT_EVENTS.get(call.event)
    # Whoever calls the hook at one point alone does not tell when the agent stops.
    return None if call.client == "text" and found is Activity.WORKING and not known else found


def _aside(usual: Activity | None, payload: Mapping[str, Any]) -> Activity | None:
    if "notification_type" in payload:
        return NOTIFICATIONS.get(str(payload["notification_type"]))
    if usual is Activity.OUT_OF_QUOTA:
        return ERRORS.get(str(payload.get("error")), Activity.IDLE)
    if usual is Activity.COMPACTING and payload.get("trigger") == "manual":  # its person did it, between two turns
        return None
    if usual is Activity.GONE and payload.get("reason") in RESTARTED:
        return None
    return usual


def quota_until(payload: Mapping[str, Any]) -> float | None:
    """Return when (unix time) the quota is there again, which the client's words alone say, such as `resets 3pm
    (Europe/Berlin)` or `resets Oct 7, 3:30pm (UTC)`. None if they do not."""
    import re  # none of these where no quota ran out
    from datetime import UTC, datetime, timedelta
    from zoneinfo import ZoneInfo

    found = re.search(RESETS, str(payload.get("last_assistant_message"))[:2000])
    if found is None:
        return None
    month, day, hour, minute, half, zone = found.groups()
    try:
        here = datetime.now(UTC).astimezone(ZoneInfo(zone))
        then = here.replace(hour=int(hour) % 12 + 12 * (half == "p"), minute=int(minute or 0), second=0, microsecond=0)
        if month:
            then = then.replace(month=MONTHS.index(month) + 1, day=int(day))
            then = then if then > here - timedelta(days=1) else then.replace(year=then.year + 1)
        elif then <= here:
            then += timedelta(days=1)
    except (ValueError, KeyError, OSError):  # no such zone, day or hour
        return None
    return then.timestamp()
