"""OpenSSH's server for tests, on loopback: another machine, whose one account is this one."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.outside import program
from tests.ports import free_port

START_SECONDS = 30
SERVER = "/usr/sbin/sshd"
ALIAS = "far"
SETTINGS = """
ListenAddress 127.0.0.1
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
CONFIG = """
Host *
  HostName 127.0.0.1
  Port {port}
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known}
"""


def named(process: psutil.Process, name: str) -> bool:
    """Whether it is of this program, and has not ended meanwhile."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.name() == name)
    return False


class Sshd:
    """The real server, on a port of its own, with its keys and the client's files in `directory`. `settings` are lines
    of its configuration."""

    def __init__(self, directory: Path, settings: str = "") -> None:
        self._program, self._keygen = program(SERVER), program("ssh-keygen")
        self.directory, self.port = directory, free_port()
        self.config, self.known = directory / "ssh_config", directory / "known_hosts"
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("host", "client"):
            self.make_key(name)
        self.accept("client")
        self.trust()
        self.config.write_text(CONFIG.format(port=self.port, key=directory / "client", known=self.known))
        self._settings = f"{settings}\nPort {self.port}\nHostKey {directory / 'host'}{SETTINGS}"
        self._settings += f"AuthorizedKeysFile {directory / 'authorized_keys'}\n"

    def make_key(self, name: str) -> None:
        """Make a key, in place of the one of this name."""
        file = self.directory / name
        file.unlink(missing_ok=True)
        subprocess.run([self._keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)

    def accept(self, name: str) -> None:
        """Let the holder of a key in, and nobody else."""
        (self.directory / "authorized_keys").write_bytes((self.directory / f"{name}.pub").read_bytes())

    def trust(self) -> None:
        """Let the client know the server's key."""
        kind, key, *_ = (self.directory / "host.pub").read_text().split()
        self.known.write_text(f"[127.0.0.1]:{self.port} {kind} {key}\n")

    def start(self) -> None:
        """Start it, also again, and return once it listens."""
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # where it locks up its processes that nobody is signed in to
        file = self.directory / "sshd_config"
        file.write_text(self._settings)
        log = (self.directory / "log").open("ab")
        self._process = subprocess.Popen([self._program, "-D", "-e", "-f", str(file)], stderr=log)
        log.close()
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self._process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def processes(self) -> list[psutil.Process]:
        """Its processes for connections, without what was started over them."""
        assert self._process is not None
        children = psutil.Process(self._process.pid).children(recursive=True)
        return [child for child in children if named(child, "sshd")]

    def freeze(self) -> None:
        """Let no connection go on, and end none: a network that is cut."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def kill_connections(self) -> None:
        """End all connections at once."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def stop(self) -> None:
        """End it with all its connections."""
        if self._process is not None:
            for process in self.processes():
                with suppress(psutil.NoSuchProcess):
                    process.resume()
            self.kill_connections()
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None
