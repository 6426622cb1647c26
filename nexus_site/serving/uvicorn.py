"""uvicorn as a hub's server: faster than Daphne, and without its limits on heads and their time
(docs/how-to/run-it-for-real.md#choose-a-server)."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import uvicorn

from nexus.core import waiting
from nexus_site import ending
from nexus_site.serving.bounds import MAX_FRAME_BYTES
from nexus_site.serving.lifespan import Lifespan

IDLE_SECONDS = 60  # a connection without a request
CLOSE_SECONDS = 2  # for connections to close once nothing is under way on them


class HubServer(uvicorn.Server):
    """Serves `application` on listening sockets; `ready` is called once it accepts connections."""

    def __init__(self, application: Any, listening: Sequence[socket.socket], ready: Callable[[], None]) -> None:
        self.listening, self.ready = listening, ready
        config = uvicorn.Config(
            application,
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,  # `BehindProxies` has the rules
            server_header=False,
            headers=[("server", "nexus")],
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=CLOSE_SECONDS,
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,
        )
        super().__init__(config)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until SIGINT or SIGTERM. Raises the error that prevented the application's start."""
        self.should_exit = ending.is_asked()
        super().run(list(self.listening))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End at the first signal; uvicorn itself would raise it again after the end."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: setattr(self, "should_exit", True))
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.application = Lifespan(self.config.app)
        await self.application.startup()
        await super().startup(sockets)
        self.ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer parked waits, let calls finish, and end streams, before uvicorn waits for all connections."""
        for server in self.servers:
            server.close()
        waiting.waiter().close()
        await ending.drained(lambda: self.server_state.tasks)
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would log each stream that is cancelled
        for task in self.server_state.tasks:
            task.cancel()
        await super().shutdown(sockets)
        await self.application.shutdown()
