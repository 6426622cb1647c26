"""The queries of `nexus hook`, which the hub of the home answers without a start of Django.

Standard library only on this side, as in `relay`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_bridge.relay import PIECE, NoHub, connect, hello_of, serves_itself
from nexus.core.coding_clients import WAKE
from nexus.core.config import Resolved
from nexus.core.time_limit import OutOfTime

if TYPE_CHECKING:
    from nexus.hooks.harness import HookCall

HOOK = "hook"  # as a client calls it: a command whose one argument is a query of `nexus.hooks.store_queries`
GO = b"go\n"  # confirms that the hub answers: nothing must be done twice
WELCOME = {"nexus": "welcome"}  # a hub that knows no hooks says more, and would take this process for a relay
LOST = "The hub ended before it answered. This may have been done: look first."
HOOK_SECONDS = 1.0  # for a hub that does not answer: the client waits, and Django needs time after that
WAKE_SECONDS = 10.0  # the same where no client waits: many that start Django at once take longer than a busy hub
OWN = ("busy_timeout_ms", "guard_edits", "planning_gate_edits")  # settings that only the hook's process reads
WRITING = ("perform", "refresh")  # queries that may write, for which the hub gets more time


class HubLost(Exception):
    """The hub ended, or answered too late, after it took the command, which may have been executed."""


def run_by_hub(home: Path, hello: Mapping[str, Any], seconds: float, answer_seconds: float | None) -> dict[str, Any]:
    """Return the hub's answer to the command in a hello. The hub has `seconds` to take it, and `answer_seconds` between
    two pieces of its answer.

    Raises NoHub where no hub takes it, HubLost, and OutOfTime inside a `time_limit`.
    """
    if serves_itself():
        raise NoHub
    connection, welcome, _ = connect(home, hello, None, seconds)
    with connection:
        if welcome != WELCOME:
            raise NoHub
        connection.settimeout(answer_seconds)
        return _answer(connection)


def _answer(connection: socket.socket) -> dict[str, Any]:
    pieces: list[bytes] = []
    try:
        connection.sendall(GO)
        while not (pieces and pieces[-1].endswith(b"\n")):
            if not (piece := connection.recv(PIECE)):
                raise HubLost
            pieces.append(piece)
        answer: dict[str, Any] = json.loads(b"".join(pieces))
    except OutOfTime:
        raise
    except (OSError, ValueError):
        raise HubLost from None
    return answer


def ask_hook(resolved: Resolved, apps: list[str], name: str, call: HookCall, arguments: Mapping[str, Any]) -> Any:
    """Return the hub's answer to a query of `nexus.hooks.store_queries`.

    Raises NoHub where this process must answer it, OutOfTime, and NexusError with the hub's message.
    """
    asker = {"client": call.client, "event": call.event, "root": call.root, "agent_id": call.agent_id}
    question = json.dumps({"call": asker, "question": {"name": name, **arguments}})
    hello = {**hello_of(resolved, apps), "key": None, "command": [HOOK, question]}
    hello["settings"] = {key: value for key, value in hello["settings"].items() if key not in OWN}
    seconds = WAKE_SECONDS if call.event == WAKE else HOOK_SECONDS
    try:
        answer = run_by_hub(resolved.settings.home, hello, seconds, None if name in WRITING else seconds)
    except HubLost:
        if name != "perform":  # the others are harmless when repeated
            raise NoHub from None
        answer = {"error": {"code": "DB_ERROR", "message": LOST, "details": {"may_be_done": True}}}
    if "error" in answer:
        from nexus.core.operations.errors import Code, NexusError  # most hooks start without

        code = next((each for each in Code if each == answer["error"]["code"]), Code.INTERNAL_ERROR)
        raise NexusError(code, answer["error"]["message"], answer["error"].get("details"))
    return answer["data"]
