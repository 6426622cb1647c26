"""Turns of requests: many calls of one caller do not delay other callers, on any transport."""

from __future__ import annotations

from typing import Any

from coordination.waiting_calls import turn_of
from nexus.core.access import INFO, ConnectionInfo, caller_name
from nexus.core.fairness import TURN, begin
from nexus.core.operations.errors import NexusError

BEGUN = frozenset(("http.response.start", "websocket.accept", "websocket.close"))


class InTurn:
    """An ASGI application whose requests are served in rotation among their callers.

    Before its turn, only the head of a request is read. The turn ends with the start of the response: a stream, and a
    response that a slow client has not read yet, hold none. A caller with more waiting calls than the setting
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
        try:
            turn = turn_of(caller)
        except NexusError as error:
            await self.refuse(scope, receive, send, error)
            return

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
