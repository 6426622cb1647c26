"""PostgreSQL for tests and benchmarks.

`NEXUS_TEST_STORE=postgresql` runs the suite on it: on the server that `NEXUS_TEST_SERVER` names
(postgresql://user@host:port, a superuser), or on a cluster that is made for the run and removed after it. Without
either, the suite runs on SQLite.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import psutil

from tests.ports import free_port

OLDEST = 14
USER = "nexus"
NEW_DATABASE = "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C.UTF-8'"
# What a power cut would need is switched off. A commit still reaches the operating system before it is answered: tests
# end a server as a crash does, and look for what it had answered.
FAST = ("fsync=off", "full_page_writes=off")


def programs() -> Path | None:
    """The directory of the newest PostgreSQL's programs on this machine that Nexus takes; None without one."""
    debian = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    fit = [path for path in debian if path.parent.name.isdecimal() and int(path.parent.name) >= OLDEST]
    if fit:
        return max(fit, key=lambda path: int(path.parent.name))
    found = shutil.which("initdb")
    return Path(found).resolve().parent if found else None


class Cluster:
    """A PostgreSQL server of one's own; `with` starts it, and stops and removes it at the end.

    It listens on `host`, and lets in whoever is in the same network. `settings` are lines of postgresql.conf.
    """

    def __init__(self, settings: Sequence[str] = FAST, *, host: str = "127.0.0.1") -> None:
        self.host, self.settings = host, settings
        self.port = free_port()
        self.home: Path | None = None

    @property
    def url(self) -> str:
        """The server's address, without a database."""
        return f"postgresql://{USER}@{self.host}:{self.port}"

    def __enter__(self) -> Self:
        self.home = Path(tempfile.mkdtemp(prefix="nexus-postgres-"))
        if (owner := _owner()) is not None:
            shutil.chown(self.home, owner)
        try:
            self._create()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        assert self.home is not None
        if (self._data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.home)

    def _create(self) -> None:
        locale = ("--encoding=UTF8", "--locale=C.UTF-8", "--lc-collate=C")
        self._run("initdb", f"--username={USER}", "--auth=trust", "--no-sync", *locale, f"--pgdata={self._data}")
        self._configure(
            f"listen_addresses = '{self.host}'",
            f"port = {self.port}",
            "unix_socket_directories = ''",
            "max_connections = 300",
            *self.settings,
        )
        with (self._data / "pg_hba.conf").open("a") as file:
            file.write("host all all samenet trust\n")

    def _configure(self, *lines: str) -> None:
        with (self._data / "postgresql.conf").open("a") as file:
            file.write("\n".join([*lines, ""]))

    def start(self) -> None:
        """Start the server, and return once it takes connections."""
        self._run("pg_ctl", "start", "--wait", f"--pgdata={self._data}", f"--log={self._data}/server.log")

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server as a crash does: connections end in the middle of what they do. `fast`: as an operator."""
        self._run("pg_ctl", "stop", "--wait", f"--mode={mode}", f"--pgdata={self._data}")

    @contextlib.contextmanager
    def hung(self) -> Iterator[None]:
        """Stop all of the server's processes for the block: the kernel goes on to take connections and bytes for it."""
        postmaster = psutil.Process(int((self._data / "postmaster.pid").read_text().splitlines()[0]))
        postmaster.suspend()  # first, so that it starts no more
        processes = [postmaster, *postmaster.children()]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in reversed(processes):
                process.resume()

    @property
    def _data(self) -> Path:
        assert self.home is not None
        return self.home / "data"

    def _run(self, program: str, *arguments: str) -> None:
        directory = programs()
        assert directory is not None
        command = [str(directory / program), *arguments]
        output = Path(str(self.home), "output")
        with output.open("a") as file:  # no pipe: the server would hold it open
            done = subprocess.run(command, user=_owner(), cwd=self.home, stdin=-3, stdout=file, stderr=file)
        if done.returncode:
            raise RuntimeError(f"{program} failed: {output.read_text()}")


class Standby(Cluster):
    """A server that follows a primary, takes no writes, and may become the primary."""

    def __init__(self, primary: Cluster) -> None:
        super().__init__(primary.settings, host=primary.host)
        self._primary = primary

    def _create(self) -> None:
        data = f"--pgdata={self._data}"
        self._run("pg_basebackup", f"--dbname={self._primary.url}", "--write-recovery-conf", "--checkpoint=fast", data)
        self._configure(f"port = {self.port}")

    def promote(self) -> None:
        """Make it the primary, and return once it takes writes."""
        self._run("pg_ctl", "promote", "--wait", f"--pgdata={self._data}")


def _owner() -> str | None:
    """Whose processes they are: initdb and the server refuse root."""
    if os.geteuid():
        return None
    return "postgres" if programs() and Path("/var/lib/postgresql").exists() else "nobody"


def _server() -> str:
    """The server that this run's tests use; empty for SQLite. Workers of a parallel run inherit it."""
    server = os.environ.get("NEXUS_TEST_SERVER", "")
    if not server and os.environ.get("NEXUS_TEST_STORE") == "postgresql":
        if programs() is None:
            raise RuntimeError("NEXUS_TEST_STORE=postgresql needs PostgreSQL's programs, or NEXUS_TEST_SERVER")
        cluster = Cluster()
        server = os.environ["NEXUS_TEST_SERVER"] = cluster.__enter__().url
        atexit.register(cluster.__exit__)
    return server


SERVER = _server()


def url(name: str, *, server: str = SERVER) -> str:
    """The address of one database there."""
    return f"{server}/{name}"


_making = threading.Lock()
_made: dict[tuple[Path, str], str] = {}


def database_of(home: Path, server: str, like: Path | None = None) -> str:
    """The URL of a new database for the processes over one home; dropped when this process ends.

    It is empty, or a copy of that of the home `like`, which nobody uses meanwhile: quicker than to migrate.
    """
    with _making:
        if (home, server) not in _made:
            _made[home, server] = _make(_name(home), server, f"TEMPLATE {_name(like)}" if like else NEW_DATABASE)
        return _made[home, server]


def _name(home: Path) -> str:
    return f"nexus_home_{hashlib.sha256(os.fsencode(home)).hexdigest()[:16]}"


def _make(name: str, server: str, how: str) -> str:
    import psycopg

    drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"

    def run(*statements: str) -> None:
        with psycopg.connect(url("postgres", server=server), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def leave() -> None:
        with contextlib.suppress(psycopg.OperationalError):  # the server went first, and the database with it
            run(drop)

    run(drop, f"CREATE DATABASE {name} {how}")
    atexit.register(leave)
    return url(name, server=server)


@contextlib.contextmanager
def fresh_database(home: Path, settings: Sequence[str] = FAST) -> Iterator[str]:
    """The URL of a database for the processes over `home`: on the run's server, or on a cluster with `settings`."""
    if SERVER:
        yield database_of(home, SERVER)
        return
    with Cluster(settings) as cluster:
        yield database_of(home, cluster.url)


def store_of(home: Path) -> dict[str, str]:
    """What the environment of a process over `home` says about its store, in the run of this suite.

    No test cuts the power, so a commit to a file need not wait for the disk.
    """
    return {"NEXUS_DATABASE_URL": database_of(home.resolve(), SERVER)} if SERVER else {"NEXUS_DURABILITY": "normal"}
