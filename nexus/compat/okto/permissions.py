"""Permissions of okto-nexus as limits: the flags, and the operations that they let an agent use."""

from __future__ import annotations

from typing import Any, NamedTuple

# By flag, what an agent without it may not use.
OPERATIONS = {
    "handoffs.create": ("handoff_create",),
    "handoffs.work": ("handoff_claim", "handoff_start", "handoff_complete", "handoff_reject"),
    "handoffs.cancel": ("handoff_cancel",),
    "channels.create": ("channel_create",),
    "artifacts.put": ("artifact_put",),
    "events.read": ("event_get", "event_wait"),
    "workspaces.list": ("workspace_list",),
    "shared_md.render": ("shared_md_render",),
    "health.read": ("coordination_health",),
}
SENDING = {"messages.send_direct", "messages.send_broadcast", "messages.send_channel"}
LIMITS = {"limits.messages_per_minute": "messages_per_minute", "limits.max_recipients": "recipients"}


class Translated(NamedTuple):
    """Limits that do what permissions did, and the permissions that no limit expresses."""

    values: dict[str, int]
    refused: list[str]
    without_place: list[str]


def translate(flags: Any) -> Translated:
    """Return the limits of an agent with these permissions; None has none."""
    given = {
        f"{group}.{name}": value
        for group, of_group in (flags.items() if isinstance(flags, dict) else ())
        if isinstance(of_group, dict)
        for name, value in of_group.items()
    }
    off = {flag for flag, value in given.items() if value is False}
    refused = [name for flag, names in OPERATIONS.items() if flag in off for name in names]
    values = {ours: given[flag] for flag, ours in LIMITS.items() if type(given.get(flag)) is int and given[flag] > 0}
    if off >= SENDING:
        refused.append("message_create")
        off -= SENDING
    elif "messages.send_broadcast" in off:
        values["recipients"] = 1  # one agent at a time
        off.discard("messages.send_broadcast")
    without_place = sorted(off - OPERATIONS.keys())
    if given.get("messages.allowed_peers"):
        without_place.append("messages.allowed_peers")
    return Translated(values, refused, without_place)
