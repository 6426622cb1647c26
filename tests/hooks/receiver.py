"""A server on loopback that takes what the hub sends."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Receiver:
    """It records the headers of each request and its JSON, and the body as it came; it answers `status`."""

    url: str = ""
    status: int = 204
    got: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    arrived: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A server that listens."""
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            found.bodies.append(body)
            found.got.append((headers, json.loads(body) if "json" in headers.get("content-type", "") else {}))
            self.send_response(found.status)
            self.send_header("location", f"{found.url}/elsewhere")
            self.end_headers()
            found.arrived.set()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield found
    server.shutdown()
    server.server_close()
