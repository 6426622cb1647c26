"""The sessions of MCP over HTTP, for clients of the older handshake: whose each is, whether its client reads, and when
it is over. The SDK keeps its own record private, so this one is read off requests and their answers."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.streamable_http_manager import DEFAULT_SESSION_IDLE_TIMEOUT, StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from nexus.core.operations.registry import Choice

MAX_SESSIONS = 32  # of one agent; each stores its last request and answer
IDLE_SECONDS = DEFAULT_SESSION_IDLE_TIMEOUT + 60  # the SDK has ended an idle session by then
ID = "mcp-session-id"


@dataclass(eq=False)
class Session:
    """A session of an agent; `choice` is the one that it began with."""

    user: AuthenticatedUser
    choice: Choice
    used: float = 0.0  # last, by the loop's clock
    requests: int = 0  # under way
    streams: int = 0  # open for what the server sends of its own accord
    ends: ExitStack = field(default_factory=ExitStack)  # what to do when it is over


class Sessions:
    """The sessions of one manager of the SDK's, by agent. The most recently used one of each is last."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager
        self._of_agent: defaultdict[str, dict[str, Session]] = defaultdict(dict)

    def find(self, agent_id: str, session_id: str, user: AuthenticatedUser) -> Session | None:
        """Return a session that its user uses now; None if there is none of this id, or another user began it."""
        of_agent = self._of_agent[agent_id]
        session = of_agent.get(session_id)
        if session is None or session.user.access_token != user.access_token:
            return None
        of_agent[session_id] = of_agent.pop(session_id)
        return session

    async def serve(
        self, agent_id: str, session: Session, scope: Scope, receive: Receive, send: Send, *, is_new: bool
    ) -> None:
        """Let the SDK answer a request of a session; a new one begins with it, if the SDK accepts that."""
        session_id, reading = Headers(scope=scope).get(ID, ""), 0

        async def noting(message: Message) -> None:
            nonlocal reading
            if message["type"] == "http.response.start":
                accepted = message["status"] < 400
                if is_new:
                    if accepted and (begun := Headers(raw=message["headers"]).get(ID)):
                        await self._begin(agent_id, begun, session)
                elif message["status"] == 404 or (accepted and scope["method"] == "DELETE"):
                    self._forget(agent_id, session_id)
                elif accepted and scope["method"] == "GET":
                    reading = 1
                    session.streams += 1
            await send(message)

        session.requests += 1
        try:
            await self._manager.handle_request(scope, receive, noting)
        finally:
            session.requests -= 1
            session.streams -= reading
            session.used = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Forget every session: the manager has ended."""
        for agent_id, of_agent in self._of_agent.items():
            for session_id in [*of_agent]:
                self._forget(agent_id, session_id)

    async def _begin(self, agent_id: str, session_id: str, session: Session) -> None:
        """Record a session. An agent with more than its share loses its least recently used one; no other agent is
        affected, because the SDK limits only the sessions of all agents together."""
        of_agent = self._of_agent[agent_id]
        if len(of_agent) >= MAX_SESSIONS:
            oldest = next(iter(of_agent))
            await self._delete(oldest, of_agent[oldest])
            self._forget(agent_id, oldest)
        of_agent[session_id] = session
        self._expire(agent_id, session_id)

    async def _delete(self, session_id: str, session: Session) -> None:
        """End a session as its client would."""

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def ignore(message: Message) -> None:
            pass

        head = {"type": "http", "http_version": "1.1", "method": "DELETE", "scheme": "http", "path": "/mcp"}
        more = {"query_string": b"", "headers": [(ID.encode(), session_id.encode())], "user": session.user}
        await self._manager.handle_request({**head, **more}, receive, ignore)

    def _forget(self, agent_id: str, session_id: str) -> None:
        if (session := self._of_agent[agent_id].pop(session_id, None)) is not None:
            session.ends.close()

    def _expire(self, agent_id: str, session_id: str) -> None:
        """Forget a session once it is idle for so long that the SDK has ended it."""
        if (session := self._of_agent[agent_id].get(session_id)) is None:
            return
        loop = asyncio.get_running_loop()
        left = session.used + IDLE_SECONDS - loop.time()
        if session.requests or left > 0:
            loop.call_later(left if left > 0 else IDLE_SECONDS, partial(self._expire, agent_id, session_id))
        else:
            self._forget(agent_id, session_id)
