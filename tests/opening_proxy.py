"""A proxy as companies have one: it opens TLS with a certificate of its own, and alone knows where names lead."""

from __future__ import annotations

import socket
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

NAMES = ("git.example", "hooks.example")


@dataclass
class OpeningProxy:
    """Its address, the file of its certificate, and the names that it was asked for."""

    url: str
    certificate: Path
    asked: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)


@contextmanager
def opening_proxy(place: Path, servers: Mapping[str, str]) -> Iterator[OpeningProxy]:
    """Run it; `servers` are the URLs to which the names lead."""
    key, certificate = place / "key.pem", place / "certificate.pem"
    names = ",".join(f"DNS:{name}" for name in NAMES)
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=Proxy".split()
    files = ("-keyout", str(key), "-out", str(certificate))
    subprocess.run([*command, "-addext", f"subjectAltName={names}", *files], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    proxy = OpeningProxy("", certificate)

    class Tunnel(socketserver.StreamRequestHandler):
        rbufsize = 0  # what follows the head is TLS

        def handle(self) -> None:
            verb, target, _ = self.rfile.readline().decode().split()
            name = target.partition(":")[0] if verb == "CONNECT" else urlsplit(target).hostname or ""
            proxy.asked.append(name)
            while (line := self.rfile.readline().decode().strip()) and ":" in line:
                if line.lower().startswith("proxy-authorization:"):
                    proxy.logins.append(line.partition(": ")[2])
            if verb != "CONNECT" or name not in servers:
                self.wfile.write(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n")
                return
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            parts = urlsplit(servers[name])
            with (
                suppress(OSError),
                tls.wrap_socket(self.connection, server_side=True) as client,
                socket.create_connection((parts.hostname, parts.port)) as server,
            ):
                threading.Thread(target=_pass_on, args=(server, client), daemon=True).start()
                _pass_on(client, server)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Tunnel) as listening:
        threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        proxy.url = f"http://127.0.0.1:{listening.server_address[1]}"
        yield proxy
        listening.shutdown()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
