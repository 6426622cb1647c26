"""`NexusClient`: a hub's pool over HTTP."""

from __future__ import annotations

import asyncio
import copy
import itertools
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from nexus.client.errors import CallFailed, NoAnswer, NotAuthorized, NotReached, failure
from nexus.client.http import BIND_HOST, TooLarge, connections, post, url_of
from nexus.client.jsonrpc import INVALID_PARAMS, Request, RpcError, parse_response
from nexus.client.methods import AgentMethods, PoolMethods, Result
from nexus.client.stream import StreamMessage, read_stream
from nexus.client.tokens import DEFAULT_PORT, VARIABLE, UnsafeToken, discover_rpc_token

CALL_SECONDS = 60.0  # for any call, in addition to the time that it waits by itself
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 5.0  # seconds before a broken stream is resumed


class NexusClient(PoolMethods, AgentMethods):
    """A client for a server's methods; for one agent's after `for_agent`. Use it as a context manager, or call
    `aclose`.

    Without `token`, it uses this machine's: from the environment, or from the port's file in `nexus_dir`. A token may
    also be an agent's key. Every method raises ClientError.
    """

    def __init__(
        self,
        port: int = DEFAULT_PORT,
        host: str = BIND_HOST,
        *,
        token: str | None = None,
        nexus_dir: Path | None = None,
        agent_id: str | None = None,
        timeout: float = CALL_SECONDS,
    ) -> None:
        self.port, self.host, self.agent_id, self.timeout = port, host, agent_id, timeout
        self._token, self._nexus_dir = token, nexus_dir
        self._http = connections()
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, also of clients that `for_agent` returned."""
        await self._http.aclose()

    def for_agent(self, agent_id: str) -> NexusClient:
        """Return a client for the methods of one agent; it shares the connections."""
        bound = copy.copy(self)
        bound.agent_id = agent_id
        return bound

    async def list_agents(self) -> list[dict[str, Any]]:
        """Return the agents of the pool as rows."""
        agents: list[dict[str, Any]] = (await self.call("list_agents", {}))["agents"]
        return agents

    async def stream(self, after: str | int | None = None) -> AsyncGenerator[StreamMessage, None]:
        """Follow an agent live, from the beginning of its transcript, or from a position: the one in a received
        message, or a number of entries. Each entry is received once and in order, even if the connection breaks; the
        stream ends with the agent.

        Raises NotReached if there was no server for `timeout` seconds, NotAuthorized, CallFailed.
        """
        url = f"{url_of(self.host, self.port)}{self._path(of_agent=True)}/stream"
        loop, position, pause = asyncio.get_running_loop(), None if after is None else str(after), FIRST_PAUSE
        deadline = loop.time()  # the first connection is not retried
        while True:
            token = await asyncio.to_thread(self._credential)
            try:
                stream = read_stream(self._http, url, position, token=token, seconds=self.timeout)
                async with aclosing(stream) as messages:
                    async for message in messages:
                        position, pause = message.position or position, FIRST_PAUSE
                        if message.event:
                            yield message
                        if message.is_last:
                            return
                        deadline = loop.time() + self.timeout
                why = "the server ends the stream, again and again"
            except (httpx.HTTPError, httpx.InvalidURL, TooLarge) as error:
                why = _why(error)
            except TimeoutError:
                why = f"no answer within {self.timeout:g} s"
            except NotReached as error:
                why = str(error)
            except NotAuthorized:
                if token is not None or loop.time() >= deadline:
                    raise
                why = "the server has no token"  # it is shutting down, or starting
            if loop.time() >= deadline:
                raise NotReached(f"{url}: {why}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def call(
        self, method: str, params: Mapping[str, Any], *, of_agent: bool = False, seconds: float = 0
    ) -> Result:
        """Call a method and return its result. Raises NotReached, NoAnswer, NotAuthorized, CallFailed."""
        request = Request("2.0", method, dict(params), next(self._numbers))
        url = f"{url_of(self.host, self.port)}{self._path(of_agent)}"
        token = await asyncio.to_thread(self._credential)
        try:
            async with asyncio.timeout(self.timeout + seconds):
                status, body = await post(self._http, url, request, token=token)
        except TimeoutError:
            raise NoAnswer(
                f"{method}: no answer within {self.timeout + seconds:g} s; it may be done all the same."
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL, TooLarge) as error:
            raise NotReached(f"{url}: {_why(error)}") from None
        if status == 401 and token is None:
            raise NotAuthorized(
                f"There is no token for port {self.port} that you can read: set {VARIABLE}, or name the server's home."
            )
        return _result(url, status, body, request)

    def _path(self, of_agent: bool) -> str:
        if not of_agent:
            return "/rpc"
        if self.agent_id is None:
            raise ValueError("This is a method of one agent: use for_agent(agent_id).")
        if not self.agent_id.strip("."):  # a URL would take it for a parent directory
            raise CallFailed(INVALID_PARAMS, f"There is no agent {self.agent_id!r} in the pool.")
        return f"/agent/{quote(self.agent_id, safe='', errors='surrogateescape')}"

    def _credential(self) -> str | None:
        try:
            token = self._token or discover_rpc_token(self.port, self._nexus_dir)
        except UnsafeToken as error:
            raise NotAuthorized(str(error)) from None
        if token is None:
            return None
        if not token.isascii() or not token.isprintable() or " " in token:
            raise NotAuthorized("The token is none: it holds other characters than a token has.")
        return token


def _result(url: str, status: int, body: bytes, request: Request) -> Result:
    try:
        response = parse_response(body)
    except RpcError:
        raise NotReached(f"{url} is no server's: it answered {status}, and not in JSON-RPC.") from None
    if response.error is not None:
        raise failure(status, response.error)
    if response.id != request.id or not isinstance(response.result, dict):
        raise NotReached(f"{url} is no server's: it answered something else than it was asked.")
    return response.result


def _why(error: Exception) -> str:
    if isinstance(error, httpx.ConnectError):
        return "no server answers there; start it with `nexus serve --control`"
    if isinstance(error, TooLarge):
        return "the answer is larger than any server's"
    return f"the connection broke: {str(error) or type(error).__name__}"
