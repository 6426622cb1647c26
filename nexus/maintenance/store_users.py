"""Other users of the store, as far as they can be found: nobody may use it while another one replaces it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from nexus.core import instance
from nexus.core.config import CoreSettings
from nexus.core.database.sqlite.errors import beside, refuse_damaged
from nexus.core.database.store import store
from nexus.core.operations.errors import NexusError
from nexus.maintenance import store_file

SESSIONS = """
    SELECT pid, coalesce(host(client_addr), 'its server') FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        AND application_name = 'nexus'
    ORDER BY pid
"""


def in_use(config: CoreSettings) -> str | None:
    """Return who else uses this store, in words; None if nobody does."""
    return users_of_file(config.database, config.home) if config.database_url is None else users_of_server(config.home)


def users_of_server(home: Path) -> str | None:
    """Return the home's server, and Nexus's other connections to the database, from whichever machine."""
    from nexus.core.database.postgres.schema import direct

    with direct() as server:  # a connection pool of ours may hold further connections
        if server.execute(SESSIONS).fetchall():
            server.execute("SELECT pg_sleep(0.5)")  # others may be disconnecting
        found = server.execute(SESSIONS).fetchall()
    users = [f"a process at {host} (connection {pid})" for pid, host in found]
    return ", ".join([*_server(home), *users]) or None


def users_of_file(database: Path, home: Path) -> str | None:
    """Return the home's server, the processes that have the file open, and any others that SQLite knows of."""
    users = [f"{command or 'a process'} (process {pid})" for pid, command in store_file.holders(database).items()]
    users += [server for server in _server(home) if not any(server.rpartition("(")[2] in user for user in users)]
    return ", ".join(users) or ("another process" if _is_open(database) else None)


def _server(home: Path) -> list[str]:
    server = instance.running(home)
    return [f"the server on {server.host}:{server.port} (process {server.pid})"] if server else []


def _is_open(database: Path) -> bool:
    """Return whether others have the store open: if so, SQLite does not give it to one connection exclusively."""
    try:
        refuse_damaged(database)
    except NexusError:
        return False  # must not be opened
    if not database.exists():
        return False
    with closing(store_file.open_store(database)) as alone:
        alone.execute("PRAGMA busy_timeout=500")  # others may be disconnecting
        alone.execute("PRAGMA locking_mode=EXCLUSIVE")
        try:
            alone.execute("BEGIN IMMEDIATE")
        except sqlite3.DatabaseError as error:
            return store().is_busy(error)  # a damaged store gives no answer
        beside(database, "-shm").unlink(missing_ok=True)  # the only connection removes the log, but not this file
    return False
