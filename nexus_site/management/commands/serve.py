"""The hub: MCP over HTTP, REST, live events and the admin on one port."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from coordination.services import operators, workspaces
from nexus.core import surroundings, waiting
from nexus.core.access import allowed_hosts, is_loopback, runs_others_programs
from nexus.core.apps import nexus_apps
from nexus.core.cli import CommandGroup, NexusCommand
from nexus.core.config import CoreSettings
from nexus.core.contributions import Address
from nexus.core.database.store import store
from nexus.core.installation import needs_extra
from nexus.core.instance import local_url, login_code, only_server
from nexus.core.operations.errors import Code, NexusError
from nexus_site.listening import LOOPBACK, listen, port_number

# How long a thread keeps the interpreter. A call waits for it several times, at each statement for one: with Python's
# own 5 ms, many calls at once made a read of another key take 40 ms.
SWITCH_SECONDS = 0.001


class Command(NexusCommand):
    group = CommandGroup.HUB
    help = "Serve MCP, REST, live events and the admin on one port."
    examples = """examples:
  nexus serve
  nexus serve --port 9000 --host 0.0.0.0 --project .
  nexus serve --reaper

exit codes: 0 ended by SIGINT, SIGTERM or SIGHUP; 1 it could not start; stderr has the code and what to do"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default=LOOPBACK, help=f"Address to listen on. [{LOOPBACK}]")
        parser.add_argument(
            "--port", type=port_number, default=8420, help="Port to listen on; 0 takes a free one. [8420]"
        )
        parser.add_argument(
            "--project",
            dest="project_root",
            type=os.path.abspath,
            metavar="DIR",
            help="A project directory to register as a workspace at the start.",
        )
        parser.add_argument(
            "--reaper",
            action="store_true",
            help="In the background, expire leases, close dead sessions and prune what is past its retention window.",
        )
        parser.add_argument(
            "--server",
            choices=["daphne", "uvicorn"],
            default="daphne",
            help="The HTTP server; uvicorn is an extra. [daphne]",
        )

    def run(self, **options: Any) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP. Raises CONFIG_ERROR where this process cannot be the server."""
        host, port, project_root = (options[name] for name in ("host", "port", "project_root"))
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # the terminal closes; not where nohup ignores the signal
            signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
        surroundings.take_git_settings()
        store().prepare()
        if project_root is not None:
            workspaces.resolve(project_root=project_root, display_name=None)
        with only_server(CoreSettings.current().home) as announce, contextlib.ExitStack() as opened:
            listening = opened.enter_context(listen(host, port, "Choose another --host or --port."))
            address, port = listening.getsockname()[:2]
            addresses = [each for app in nexus_apps() for each in app.addresses()]
            alone = [opened.enter_context(_listen_alone(each.name, each.port)) for each in addresses if each.port]
            announce(host, port)
            _raise_file_limit()
            settings.NEXUS_REAPER = options["reaper"]
            settings.NEXUS_RELAYS = True
            settings.ALLOWED_HOSTS = [*allowed_hosts(host), *allowed_hosts(address)]  # a name, and its address
            settings.NEXUS_TRUSTS_LOCAL = is_loopback(address)
            if not settings.NEXUS_TRUSTS_LOCAL or CoreSettings.current().trusted_proxies:
                _lock_nobody_out()
            _serve(options["server"], [listening, *alone], local_url(address, port), addresses)
        waiting.WRITERS.shutdown()  # waits for the writes under way
        sys.stdout.flush()
        os._exit(0)  # a look-up or a mount that hangs blocks its thread, which would keep the process alive


def _lock_nobody_out() -> None:
    if made := operators.create_first():
        name, password = made
        print(f"[nexus] There is no key and no login yet. Log in at /admin/ as {name!r} with {password!r}; shown once.")


def _listen_alone(name: str, port: int) -> socket.socket:
    """Return a socket for a service with its own port, on loopback only, whatever the server's address is."""
    return listen(LOOPBACK, port, f"Choose another port for {name}.")


def _raise_file_limit() -> None:
    """Raise the limit of open files: each connection is one, and the usual limit is meant for smaller programs."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve(server: str, listening: Sequence[socket.socket], url: str, addresses: Sequence[Address]) -> None:
    serving = _server_class(server)
    remarks = [remark for app in nexus_apps() for remark in app.remarks().items()]
    is_login_asked = settings.NEXUS_TRUSTS_LOCAL and runs_others_programs()

    def ready() -> None:
        print(f"[nexus] MCP        {url}/mcp")
        print(f"[nexus] REST       {url}/api/v1")
        print(f"[nexus] Dashboard  {url}/admin/")
        for each in addresses:
            print(f"[nexus] {each.name:9}  {local_url(LOOPBACK, each.port) if each.port else url}{each.path}")
        for name, remark in remarks:
            print(f"[nexus] {name:9}  {remark}")
        if is_login_asked:  # agents may run programs here
            print(f"[nexus] Log in     {url}/login/{login_code(CoreSettings.current().home)} (once)")
        print("[nexus] Ready", flush=True)

    from nexus_site.asgi import application

    sys.setswitchinterval(SWITCH_SECONDS)
    serving(application, listening, ready).run()


def _server_class(name: str) -> Any:
    """Return the server of this name. Raises CONFIG_ERROR where its packages are missing."""
    try:
        return import_module(f"nexus_site.serving.{name}").HubServer
    except ModuleNotFoundError:
        raise NexusError(Code.CONFIG_ERROR, f"{needs_extra(f'--server {name}', name)}.") from None
