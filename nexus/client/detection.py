"""Is there a server on a port?"""

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
ANSWERS = (200, 401, 403)  # of a server that is asked for its agents


class DetectionResult(Enum):
    """What is there."""

    NO_SERVER = "no_server"  # the port is free
    NEXUS_SERVER = "nexus_server"
    OTHER_SERVICE = "other_service"  # something that speaks otherwise
    TIMEOUT = "timeout"  # it took the connection, and did not answer in time
    ERROR = "error"  # it could not be found out


@dataclass(frozen=True)
class Sight:
    """What was seen on a port; status and response are a server's."""

    result: DetectionResult
    status: int | None = None
    response: Response | None = None
    error: str | None = None


async def detect_server(
    port: int = DEFAULT_PORT, host: str = BIND_HOST, timeout: float = DETECTION_SECONDS
) -> DetectionResult:
    """What listens on a port; after `timeout` seconds, TIMEOUT. It is shown no token, and nothing is changed there."""
    return (await look(port, host, timeout)).result


async def wait_for_server(
    port: int = DEFAULT_PORT, host: str = BIND_HOST, timeout: float = 30.0, poll_interval: float = 0.1
) -> bool:
    """Whether a server answers within `timeout` seconds, looked for every `poll_interval` seconds."""
    try:
        async with asyncio.timeout(timeout):
            while await detect_server(port, host) is not DetectionResult.NEXUS_SERVER:
                await asyncio.sleep(poll_interval)
    except TimeoutError:
        return False
    return True


async def look(port: int, host: str, timeout: float, token: str | None = None) -> Sight:
    """Ask whatever listens for its agents, as a server is asked; it is one when it answers in JSON-RPC."""
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
