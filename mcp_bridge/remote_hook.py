"""The queries of `nexus hook` to the hub of the home, instead of a start of Django. Standard library only, as in
`relay`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from mcp_bridge.relay import NoHub, hello_of
from mcp_bridge.remote_command import HOOK, LOST, Lost, run_by_hub
from nexus.core.config import Resolved
from nexus.core.operations.errors import Code, NexusError
from nexus.hooks.harness import Call

SECONDS = 1.0  # for a hub that does not answer: the client waits, and Django needs time after that
OWN = ("busy_timeout_ms", "guard_edits", "planning_gate_edits")  # settings that only the hook's process reads
WRITING = ("perform", "refresh")  # queries that may write, for which the hub gets more time


def ask(resolved: Resolved, apps: list[str], name: str, call: Call, arguments: Mapping[str, Any]) -> Any:
    """Return the hub's answer to a query of `nexus.hooks.look`.

    Raises NoHub where this process must answer it, OutOfTime, and NexusError with the hub's message.
    """
    asker = {"client": call.client, "event": call.event, "root": call.root, "agent_id": call.agent_id}
    question = json.dumps({"call": asker, "question": {"name": name, **arguments}})
    hello = {**hello_of(resolved, apps), "key": None, "command": [HOOK, question]}
    hello["settings"] = {key: value for key, value in hello["settings"].items() if key not in OWN}
    try:
        answer = run_by_hub(
            resolved.settings.home, hello, seconds=SECONDS, answer_seconds=None if name in WRITING else SECONDS
        )
    except Lost:
        if name != "perform":  # the others are harmless when repeated
            raise NoHub from None
        raise NexusError(Code.DB_ERROR, LOST, {"may_be_done": True}) from None
    if "error" in answer:
        code = next((each for each in Code if each == answer["error"]["code"]), Code.INTERNAL_ERROR)
        raise NexusError(code, answer["error"]["message"])
    return answer["data"]
