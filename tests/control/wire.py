"""JSON-RPC as a client speaks it, to the ASGI application itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from asgiref.sync import async_to_sync

from nexus.control.rpc.endpoint import ENDPOINT
from nexus_site.serving.bounds import Bounded

GLOBAL = frozenset(("create_agent", "destroy_agent", "list_agents", "shutdown_server"))  # of the published system
TOKEN = "nxk_" + "t" * 43


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> int:
        """Of the error."""
        code: int = self.json["error"]["code"]
        return code


class Wire:
    """Requests to the endpoint; `Host` and the token go along unless a test says otherwise."""

    async def araw(
        self,
        path: str = "/rpc",
        body: bytes | Iterable[bytes] = b"",
        *,
        method: str = "POST",
        headers: Iterable[tuple[str, str]] = (),
        token: str | None = TOKEN,
        host: str | None = "127.0.0.1",
        peer: str | None = "127.0.0.1",
    ) -> Answer:
        """One request, its body in one piece or in several."""
        pieces = [body] if isinstance(body, bytes) else list(body)
        sent: list[dict[str, Any]] = []
        left = [
            {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
            for number, piece in enumerate(pieces)
        ]

        async def receive() -> dict[str, Any]:
            return left.pop(0) if left else await _never()

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        given = [*([("Authorization", f"Bearer {token}")] if token else []), *([("Host", host)] if host else [])]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in [*given, *headers]],
            "client": peer and (peer, 1),
            "server": ("192.0.2.10", 8420),
        }
        await Bounded(ENDPOINT.alone)(scope, receive, send)  # type: ignore[arg-type]
        start, content = sent[0], b"".join(message.get("body", b"") for message in sent[1:])
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], told, content)

    def raw(self, *args: Any, **kwargs: Any) -> Answer:
        answer: Answer = async_to_sync(self.araw)(*args, **kwargs)
        return answer

    def post(self, path: str, message: Any, **kwargs: Any) -> Answer:
        """One JSON message."""
        return self.raw(path, json.dumps(message).encode(), **kwargs)

    def call(self, method: str, path: str = "/rpc", /, *, as_agent: str | None = None, **params: Any) -> Any:
        """A method's result; the test fails on an error."""
        answer = self.post(path, request(method, params), headers=narrowed(as_agent)).json
        assert "error" not in answer, answer
        return answer["result"]

    def refused(self, method: str, path: str = "/rpc", /, *, as_agent: str | None = None, **params: Any) -> Any:
        """A method's error."""
        answer = self.post(path, request(method, params), headers=narrowed(as_agent))
        assert answer.status == 200 and answer.json["id"] == 1, answer
        return answer.json["error"]


def request(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    """A message that calls a method."""
    return {"jsonrpc": "2.0", "method": method, "params": params, "id": id}


def narrowed(agent_id: str | None) -> list[tuple[str, str]]:
    """The header that names whom an operator acts as."""
    return [] if agent_id is None else [("X-Nexus-Agent", agent_id)]


async def _never() -> Any:
    await asyncio.Event().wait()
