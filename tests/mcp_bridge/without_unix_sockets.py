"""`nexus`, on a system without unix sockets, such as Windows."""

import socket
import sys

from nexus_site.launch import main


def pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, as Python makes them on such a system."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        mine = socket.create_connection(listening.getsockname())
        return mine, listening.accept()[0]


if "serve" in sys.argv:
    from twisted.internet import posixbase  # it names AF_UNIX wherever the system is no Windows

    posixbase.unixEnabled = False
socket.socketpair = pair  # type: ignore[assignment]
del socket.AF_UNIX
main()
