"""Send one notice: `python -m nexus.hooks.send_notice` with a request as JSON on stdin; the answer is JSON on stdout.

A program of its own: the libraries behind it speak to a hundred services, follow redirects and take their time. Here
they connect only to public addresses, unless private ones are allowed; the hub kills it after SECONDS.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import socket
import sys
from typing import Any
from urllib.parse import urlsplit

from nexus.core import outward
from nexus.core.installation import needs_extra
from nexus.hooks.sender import is_public

LONGEST = 200  # characters of an error
SECONDS = 30.0


class Private(OSError):
    """A connection to an address that is not public."""


def main() -> int:
    request = json.load(sys.stdin)
    refused: list[str] = []
    if not request["allow_private"]:
        proxies = _proxies()
        sys.addaudithook(lambda event, arguments: _guard(event, arguments, refused, proxies))
    try:
        answer = _send(request)
    except ImportError:
        answer = {"error": needs_extra("a notice", "notices")}
    except Exception as error:
        answer = {"error": f"it failed ({type(error).__name__})"}
    if answer.get("error") and refused:
        answer = {"error": "the address leads to a private network; allow_private admits that"}
    print(json.dumps(answer))
    return 0


def _proxies() -> set[tuple[str, int]]:
    """Return the addresses of the proxies, through which the library connects."""
    found = set[tuple[str, int]]()
    for proxy in filter(None, map(outward.proxy_of, ("http://example.org", "https://example.org"))):
        parts = urlsplit(proxy)
        with contextlib.suppress(OSError):
            every = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
            found |= {(str(address[0]), int(address[1])) for *_, address in every}
    return found


def _guard(event: str, arguments: Any, refused: list[str], proxies: set[tuple[str, int]]) -> None:
    """Refuse a connection whose target is neither a public IP address, whoever resolved it, nor a proxy's."""
    if event not in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        return
    address = arguments[1]
    if address is None:  # on a socket that is connected
        return
    host = address[0] if isinstance(address, tuple) else ""
    if isinstance(address, tuple) and address[:2] in proxies:
        return
    if isinstance(address, tuple) and arguments[0].type == socket.SOCK_DGRAM and address[1] == 0:
        return  # how programs ask for their own address; nothing is sent
    try:
        allowed = is_public(ipaddress.ip_address(str(host).partition("%")[0]))
    except ValueError:
        allowed = False
    if not allowed:
        refused.append(str(host))
        raise Private("the address is private")


def _send(request: dict[str, Any]) -> dict[str, Any]:
    import apprise

    logger, lines = logging.getLogger("apprise"), _Lines()
    logger.addHandler(lines)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    to = apprise.Apprise()
    if not to.add(request["url"]):
        return {"error": "no service has an address of this form"}
    if to.notify(title=request["title"], body=request["body"] or request["title"]):
        return {}
    return {"error": lines.last or "the service did not take it"}


class _Lines(logging.Handler):
    """Keeps the first warning of the library: the reason why it could not send."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = self.last or " ".join(record.getMessage().split())[:LONGEST]


if __name__ == "__main__":
    sys.exit(main())
