"""An agent of the pool live, over a WebSocket: `/ws/pool/{agent_id}/`, for the hub's operators and agents' keys.

The server sends `{"type": "entry", "after", "entry"}`, `state`, `draft`, `heartbeat` after a silence, and `closing`
with a reason. Each carries `after`, the position to resume from with `?after=`. Messages of the client are ignored.
"""

from __future__ import annotations

from functools import partial
from typing import Any
from urllib.parse import parse_qs

from django.urls import path

from nexus.control.errors import ControlCode
from nexus.control.models import Entry
from nexus.control.rpc.agent_stream import AgentState, Follower, Piece, Position, entry_row, start_of
from nexus.control.rpc.endpoint import ENDPOINT
from nexus.core.access import ConnectionInfo
from nexus.core.operations.caller import Caller, of_its_own
from nexus.core.operations.dispatch import documented
from nexus.core.operations.errors import Code
from nexus.core.waiting import AUTHENTICATION, READERS, in_thread
from nexus.core.websocket import Listener

ENDED = 1000  # RFC 6455: normal closure


class AgentConsumer(Listener):
    """One client's connection."""

    position_key = "after"
    refusals = (*Listener.refusals, Code.NOT_FOUND, ControlCode.NOT_PERMITTED, ControlCode.POOL_OFF)

    async def connect(self) -> None:
        info, connection = ConnectionInfo.of_scope(self.scope, self.scope["user"]), of_its_own("websocket")
        agent_id = self.scope["url_route"]["kwargs"]["agent_id"]

        def who() -> Caller:
            return ENDPOINT.follower(self.scope, info, connection)

        try:
            caller = await in_thread(AUTHENTICATION, who)
            given = parse_qs(info.query).get("after", [None])[-1]
            start = await in_thread(READERS, partial(start_of, caller, agent_id, given))
            self.follower = Follower(who, start)
        except Exception as failure:
            documented(failure)  # logs unexpected errors
            await self.close()  # before it was accepted: the client gets 403
            return
        await self.accept()
        self.follow(self.follower.follow())

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None, **kwargs: Any) -> None:
        """Ignore what the client sends."""

    @property
    def position(self) -> str:
        return str(self.follower.position)

    def farewell(self) -> tuple[str, int]:
        over = self.follower.sent_state is not None and self.follower.sent_state["ended"]
        return ("The agent has ended.", ENDED) if over else super().farewell()

    async def pass_on(self, item: Entry | AgentState | Piece | None) -> None:
        if isinstance(item, Entry):
            behind = Position(self.follower.position.agent, item.position + 1)
            await self.send_message("entry", after=str(behind), entry=entry_row(item))
        elif isinstance(item, Piece):
            await self.send_message("draft", draft=vars(item))
        elif item is None:
            await self.send_message("heartbeat")
        else:
            await self.send_message("state", state=item)


routes = [path("ws/pool/<str:agent_id>/", AgentConsumer.as_asgi())]
