"""Connect stdin and stdout with a socket: relay.py SOCKET. Ends when either side ends."""

from __future__ import annotations

import os
import socket
import sys
import threading

CHUNK = 65_536  # bytes


def main() -> None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(sys.argv[1])
    except OSError as error:
        sys.exit(f"the hub is not there any more ({error.strerror})")
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    while chunk := connection.recv(CHUNK):
        while chunk:
            chunk = chunk[os.write(1, chunk) :]


def _send(connection: socket.socket) -> None:
    while chunk := os.read(0, CHUNK):
        connection.sendall(chunk)
    connection.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
