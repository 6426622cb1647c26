"""Detection of a server on a port."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from enum import Enum

import httpx

from nexus.client.http import BIND_HOST, TooLarge, connections, post, url_of
from nexus.client.jsonrpc import Request, Response, RpcError, parse_response
from nexus.client.tokens import DEFAULT_PORT

DETECTION_SECONDS = 2.0
ANSWERS = (200, 401, 403)  # status codes of a Nexus server


class DetectionResult(Enum):
    """What was detected on a port."""

    NO_SERVER = "no_server"  # the port is free
    NEXUS_SERVER = "nexus_server"
    OTHER_SERVICE = "other_service"  # another protocol
    TIMEOUT = "timeout"  # connected, but no answer in time
    ERROR = "error"  # the check failed


@dataclass(frozen=True)
class Sight:
    """What was detected on a port; `status` and `response` are set for a server."""

    result: DetectionResult
    status: int | None = None
    response: Response | None = None
    error: str | None = None


async def detect_server(
    port: int = DEFAULT_PORT, host: str = BIND_HOST, timeout: float = DETECTION_SECONDS
) -> DetectionResult:
    """Return what listens on a port; TIMEOUT after `timeout` seconds. Sends no token and changes nothing."""
    return (await look(port, host, timeout)).result


async def wait_for_server(
    port: int = DEFAULT_PORT, host: str = BIND_HOST, timeout: float = 30.0, poll_interval: float = 0.1
) -> bool:
    """Return whether a server answers within `timeout` seconds; checks every `poll_interval` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while await detect_server(port, host) is not DetectionResult.NEXUS_SERVER:
                await asyncio.sleep(poll_interval)
    except TimeoutError:
        return False
    return True


async def look(port: int, host: str, timeout: float, token: str | None = None) -> Sight:
    """Call `list_agents` on a port; whatever answers in JSON-RPC is a server."""
    request = Request("2.0", "list_agents", id=1)
    try:
        async with asyncio.timeout(timeout), connections() as client:
            url = f"{url_of(host, port)}/rpc"
            status, body = await post(client, url, request, token=token)
    except TimeoutError:
        return Sight(DetectionResult.TIMEOUT, error=f"no answer within {timeout:g} s")
    except httpx.ConnectError as error:
        if _caused_by(error, socket.gaierror):
            return Sight(DetectionResult.ERROR, error=f"the host {host!r} is unknown")
        return Sight(DetectionResult.NO_SERVER)
    except (httpx.ProtocolError, httpx.NetworkError, httpx.DecodingError, TooLarge):
        return Sight(DetectionResult.OTHER_SERVICE)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        return Sight(DetectionResult.ERROR, error=str(error) or type(error).__name__)
    try:
        response = parse_response(body)
    except RpcError:
        return Sight(DetectionResult.OTHER_SERVICE)
    if status not in ANSWERS:
        return Sight(DetectionResult.OTHER_SERVICE)
    return Sight(DetectionResult.NEXUS_SERVER, status, response)


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None
