"""Every request takes its turn: one caller's many calls hold up nobody else's, whichever transport they come by."""

from __future__ import annotations

from typing import Any

from coordination.errors import CoordinationCode
from core.access import INFO, ConnectionInfo, caller_name
from core.config import CoreSettings
from core.operations.errors import NexusError
from core.turns import TURN, Turn, begin, turns
from nexus_site.serving import metrics

RETRY_SECONDS = 1
BEGUN = frozenset(("http.response.start", "websocket.accept", "websocket.close"))


class InTurn:
    """An ASGI application whose requests are served in rotation among their callers.

    Nothing of a request but its head is looked at before its turn. The turn ends with the start of the response: what
    streams, and what a slow client has not taken yet, holds none. A caller with more waiting calls than the setting
    `max_waiting_calls` is answered by `refuse`.
    """

    def __init__(self, application: Any, *, exempt: Any, refuse: Any) -> None:
        self.application, self.exempt, self.refuse = application, exempt, refuse

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or self.exempt(scope):
            await self.application(scope, receive, send)
            return
        info = ConnectionInfo.of_scope(scope)
        caller = caller_name(info)
        if turns().waiting(caller) >= CoreSettings.current().max_waiting_calls:
            metrics.REFUSED.inc()
            await self.refuse(scope, receive, send, too_many())
            return
        turn = Turn(turns(), caller)

        async def sending(message: Any) -> None:
            if message["type"] in BEGUN and not turn.kept:
                turn.give_back()
            await send(message)

        await turn.take()
        try:
            begin(turn)
            await self.application({**scope, TURN: turn, INFO: info}, receive, sending)
        finally:
            turn.give_back()


def too_many() -> NexusError:
    """The answer to a caller that has as many waiting calls as it may."""
    return NexusError(
        CoordinationCode.QUOTA_EXCEEDED,
        f"{CoreSettings.current().max_waiting_calls} calls of yours wait already (max_waiting_calls), and this one was "
        f"not looked at. Send fewer at once; try again in {RETRY_SECONDS} s.",
        {"retry_after_seconds": RETRY_SECONDS},
    )
