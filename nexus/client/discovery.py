"""Detection of a server on a port; discovery of the servers on this machine, and of those that accept our token."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import httpx

from nexus.client.http import BIND_HOST, TooLarge, connections, post, url_of
from nexus.client.jsonrpc import Request, Response, RpcError, parse_response
from nexus.client.tokens import DEFAULT_PORT, UnsafeToken, home_directory, read_token, token_name

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


PROBE_SECONDS = 0.5
MOST_AT_ONCE = 50
LAST_PORT = 65_535
TOKEN_FILE = re.compile(r"rpc-([1-9][0-9]{0,4})\.token")
PART = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


class AuthStatus(Enum):
    """A server's answer to our token."""

    OK = "ok"  # the token is accepted
    REQUIRED = "required"  # a token is required, and there is none
    INVALID_TOKEN = "invalid_token"  # it is another run's  # noqa: S105
    DISABLED = "disabled"  # no token is required


@dataclass(frozen=True)
class DiscoveredServer:
    """What is on a port; `auth` and `agents` (rows of list_agents) are set for a server, as far as it answered."""

    host: str
    port: int
    base_url: str
    detection: DetectionResult
    auth: AuthStatus | None
    agents: list[dict[str, Any]] | None
    token_path: Path | None
    token_present: bool
    error: str | None


def parse_port_spec(spec: str) -> list[int]:
    """Return the ports of a list like `8765,9000-9005`, each once. Raises ValueError for an invalid list."""
    ports: dict[int, None] = {}
    for part in spec.split(","):
        found = PART.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"{part.strip()[:40]!r} is no port and no range of them, such as 8765 or 9000-9005.")
        first, last = int(found[1]), int(found[2] or found[1])
        if not 1 <= first <= last <= LAST_PORT:
            raise ValueError(f"{part.strip()!r}: ports go from 1 to {LAST_PORT}, the lower one first.")
        ports.update(dict.fromkeys(range(first, last + 1)))
    return list(ports)


def discover_token_ports(nexus_dir: Path | None = None) -> dict[int, Path]:
    """Return the token files of a home, by port; some may be left by servers that were killed."""
    home = home_directory(nexus_dir)
    ports: dict[int, Path] = {}
    for path in sorted(home.glob("rpc*.token")):
        if path.name == token_name(DEFAULT_PORT):
            ports.setdefault(DEFAULT_PORT, path)
        elif (found := TOKEN_FILE.fullmatch(path.name)) and int(found[1]) <= LAST_PORT:
            ports[int(found[1])] = path
    return dict(sorted(ports.items()))


async def probe_server(
    port: int,
    host: str = BIND_HOST,
    timeout: float = PROBE_SECONDS,
    token_path: Path | None = None,
    nexus_dir: Path | None = None,
) -> DiscoveredServer:
    """Return what is on a port, and whether it accepts the token of that file, or else of the port's file in the home.

    The token is sent only to a server that asks for one in the way of ours.
    """
    path = token_path or discover_token_ports(nexus_dir).get(port)
    sight, token, error = await look(port, host, timeout), None, None
    if sight.status == 401 and path is not None:
        try:
            token = await asyncio.to_thread(read_token, path)
        except UnsafeToken as unsafe:
            error = str(unsafe)
        if token is not None:
            sight = await look(port, host, timeout, token)
    return DiscoveredServer(
        host=host,
        port=port,
        base_url=url_of(host, port),
        detection=sight.result,
        auth=_auth(sight, token),
        agents=_agents(sight),
        token_path=path,
        token_present=token is not None,
        error=error or sight.error,
    )


async def discover_servers(
    ports: Iterable[int],
    host: str = BIND_HOST,
    timeout: float = PROBE_SECONDS,
    max_concurrency: int = MOST_AT_ONCE,
    nexus_dir: Path | None = None,
) -> list[DiscoveredServer]:
    """Probe ports, at most `max_concurrency` at once, with the tokens of a home; return what is on those in use, in
    their order."""
    slots = asyncio.Semaphore(max_concurrency)

    async def probe(port: int) -> DiscoveredServer:
        async with slots:
            return await probe_server(port, host, timeout, nexus_dir=nexus_dir)

    found = await asyncio.gather(*(probe(port) for port in dict.fromkeys(ports)))
    return [server for server in found if server.detection is not DetectionResult.NO_SERVER]


def _auth(sight: Sight, token: str | None) -> AuthStatus | None:
    match sight.status:
        case 401:
            return AuthStatus.REQUIRED
        case 403:
            return AuthStatus.INVALID_TOKEN
        case 200:
            return AuthStatus.DISABLED if token is None else AuthStatus.OK
    return None


def _agents(sight: Sight) -> list[dict[str, Any]] | None:
    result = sight.response.result if sight.response else None
    agents = result.get("agents") if isinstance(result, dict) else None
    return agents if isinstance(agents, list) else None
