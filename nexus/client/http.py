"""One request to a server's JSON-RPC: without a proxy, bounded in time and size."""

from __future__ import annotations

import ssl
from functools import cache

import httpx

from nexus.client.jsonrpc import Request, serialize_request

BIND_HOST = "127.0.0.1"  # where a server listens by default
MAX_RESPONSE_BYTES = 64 * 2**20


class TooLarge(Exception):
    """A response that is larger than any of a Nexus server."""


def url_of(host: str, port: int) -> str:
    """Return the base URL of a server on a port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def connections() -> httpx.AsyncClient:
    """Return a client that uses no proxy, because it sends a token, and follows no redirects."""
    return httpx.AsyncClient(trust_env=False, follow_redirects=False, verify=_tls())


@cache
def _tls() -> ssl.SSLContext:
    """Return a TLS context without authorities, which take 25 ms to read: no URL here needs them. Cached."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def post(client: httpx.AsyncClient, url: str, request: Request, *, token: str | None = None) -> tuple[int, bytes]:
    """Return the status and the body of the response. The caller must bound the time.

    Raises httpx.HTTPError, and TooLarge past MAX_RESPONSE_BYTES.
    """
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    content = serialize_request(request)
    async with client.stream("POST", url, content=content, headers=headers, timeout=None) as response:
        body = bytearray()
        async for piece in response.aiter_raw():
            body += piece
            if len(body) > MAX_RESPONSE_BYTES:
                raise TooLarge
        return response.status_code, bytes(body)
