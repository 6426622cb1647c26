"""The hub: MCP over HTTP, REST, live events and the admin on one port."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from coordination.services import operators, workspaces
from core import waiting
from core.access import allowed_hosts, is_loopback
from core.cli import Group, NexusCommand
from core.config import CoreSettings
from core.database import store
from core.instance import only_server
from core.operations.errors import Code, NexusError
from core.operations.parameters import whole_number
from nexus_site.serving.ports import listener_of

BACKLOG = 1024  # connections that wait to be accepted


class Command(NexusCommand):
    group = Group.HUB
    help = "Serve MCP, REST, live events and the admin on one port."
    examples = """examples:
  nexus serve
  nexus serve --port 9000 --host 0.0.0.0 --project-root .

exit codes: 0 ended by SIGINT or SIGTERM; 1 it could not start; stderr has the code and what to do"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on. [127.0.0.1]")
        parser.add_argument("--port", type=_port, default=8420, help="Port to listen on; 0 takes a free one. [8420]")
        parser.add_argument("--project-root", help="A project directory to know from the start.")
        parser.add_argument(
            "--reaper",
            action="store_true",
            help="In the background, expire leases, close dead sessions and prune what is past its retention window.",
        )

    def run(self, **options: Any) -> None:
        """Serve until SIGINT or SIGTERM. Raises CONFIG_ERROR where this cannot be the server."""
        host, port, project_root = (options[name] for name in ("host", "port", "project_root"))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: sys.exit(0))  # until the server takes them over
        store().prepare()
        if project_root is not None:
            workspaces.resolve(project_root=project_root, display_name=None)
        with only_server(CoreSettings.current().home) as announce, _listen(host, port) as listening:
            address, port = listening.getsockname()[:2]
            announce(host, port)
            _raise_file_limit()
            settings.NEXUS_REAPER = options["reaper"]
            settings.ALLOWED_HOSTS = allowed_hosts(host)
            settings.NEXUS_TRUSTS_LOCAL = is_loopback(address)
            if not settings.NEXUS_TRUSTS_LOCAL:
                _lock_nobody_out()
            _serve(listening, _url(address, port))
        waiting.WRITERS.shutdown()  # what was begun is written
        sys.stdout.flush()
        os._exit(0)  # a look-up or a mount that hangs keeps its thread, and that would keep the process


def _lock_nobody_out() -> None:
    if made := operators.create_first():
        name, password = made
        print(f"[nexus] There is no key and no login yet. Log in at /admin/ as {name!r} with {password!r}; shown once.")


def _port(text: str) -> int:
    port = whole_number(text, 65_535)
    if port is None:
        raise ValueError(text)
    return port


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "not a host name"
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            why = f"{listener_of(port) or 'another process'} listens there already"
        raise NexusError(
            Code.CONFIG_ERROR, f"Cannot listen on {host}:{port}: {why}. Choose another --host or --port."
        ) from None
    listening.setblocking(False)
    return listening


def _url(address: str, port: int) -> str:
    """How a client on this machine reaches the server."""
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)  # noqa: S104
    return f"http://[{local}]:{port}" if ":" in local else f"http://{local}:{port}"


def _raise_file_limit() -> None:
    """Each connection is an open file, and the usual limit is meant for smaller programs."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve(listening: socket.socket, url: str) -> None:
    from nexus_site.serving.daphne import HubServer

    def ready() -> None:
        print(f"[nexus] MCP        {url}/mcp")
        print(f"[nexus] REST       {url}/api/v1")
        print(f"[nexus] Dashboard  {url}/admin/")
        print("[nexus] Ready", flush=True)

    from nexus_site.asgi import application

    HubServer(application, listening, ready).run()
