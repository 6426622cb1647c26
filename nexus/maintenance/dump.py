"""Backups of a store on PostgreSQL: one file that pg_dump writes, and that replaces the store in one transaction."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from django.db import connection
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from coordination.log.emit import streams
from coordination.models import Event
from nexus.core.apps import own_labels
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.database.migrations import pending_migrations, refuse_other_version
from nexus.core.database.postgres.connection import CHANNEL, DEFAULTS
from nexus.core.database.postgres.store import WRITERS_LOCK
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError, invalid
from nexus.core.processes import LIBPQ, NEUTRAL, PIPE, environment, run, start
from nexus.maintenance import store_file
from nexus.maintenance.backup import RESTORED, Backup, Restored, refuse_in_use, refuse_older, restoration, stamp
from nexus.maintenance.users import users_of_server

SECRETS = ("password", "sslpassword")  # parts of a connection string that must not appear in a process list
LOCKED = "locked"  # psql echoes this once it holds the lock
BEGIN = f"""
SET client_min_messages = error; SET lock_timeout = {{patience}};
BEGIN; SELECT pg_advisory_xact_lock({WRITERS_LOCK}) \\g /dev/null
\\echo {LOCKED}
\\o /dev/null
"""
DUMP_SECONDS, VERSION_SECONDS = 86_400, 30  # time limits of the programs
LARGEST = 1_000_000  # bytes of its output that are read
COPY = re.compile(r'COPY (?:\w+|"[^"]+")\."?(\w+)"? \(([^)]*)\) FROM stdin;')
SEQUENCE = re.compile(r"SELECT pg_catalog\.setval\('[^']*\.events_event_id_seq', (\d+), (true|false)\);")


@dataclass
class Dump:
    """The content of a dump, read from its beginning to its end."""

    rows: dict[str, int] = field(default_factory=dict)  # by table
    applied: set[tuple[str, str]] = field(default_factory=set)  # its migrations
    given_out: int = 0  # the highest event id


def back_up(destination: Path) -> Backup:
    """Dump the store as it is at one moment, while others write, and read the dump before it gets its name.

    Raises VALIDATION_ERROR if `destination` exists, DB_ERROR if the programs are missing, too old, or fail.
    """
    if destination.exists():
        raise store_file.exists_error(destination)
    with (
        store_file.explained(f"No backup was written to {destination}."),
        store_file.partial_file(destination) as partial,
        store().snapshot(),
    ):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_export_snapshot()")
            (moment,) = cursor.fetchone()
            schema = connection.ops.quote_name(_schema())
            _run(
                "pg_dump",
                *(
                    "--format=custom",
                    "--no-owner",
                    "--no-privileges",
                    f"--snapshot={moment}",
                    f"--file={partial.absolute()}",
                    "--load-via-partition-root",
                ),
                f"--schema={schema}",  # without others' tables in the same database, and without extensions
                "--dbname",
                _address(),
            )
            made = examined(partial)
            for table, count in made.rows.items():
                cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)}")  # noqa: S608
                if cursor.fetchone()[0] != count:
                    raise NexusError(Code.DB_ERROR, f"The dump differs from the store in {table}. Try again.")
        store_file.publish(partial, destination)
    return Backup(destination, destination.stat().st_size, made.rows, [])


def examined(path: Path) -> Dump:
    """Read all of a dump and return its content. Raises VALIDATION_ERROR for a file that is not a dump of a store."""
    found = Dump()
    with _reading(path, "--data-only") as lines:
        table, columns = "", [""]
        for line in map(bytes.decode, lines):
            if table:
                if line == "\\.\n":
                    table = ""
                    continue
                found.rows[table] += 1
                if table == "django_migrations":
                    row = dict(zip(columns, line.rstrip("\n").split("\t"), strict=True))
                    found.applied.add((row["app"], row["name"]))
            elif begun := COPY.match(line):
                table, columns = begun[1], begun[2].split(", ")
                found.rows.setdefault(table, 0)  # a table with partitions has several parts
            elif given := SEQUENCE.match(line):
                found.given_out = int(given[1]) if given[2] == "true" else 0
    if not any(app in own_labels() for app, _ in found.applied):
        raise invalid(f"{path} is not a store of Nexus.")
    return found


def restore(path: Path, *, into_running: bool) -> Restored:
    """Replace the store with a dump, completely or not at all; keep the former store as a dump in the home.

    The writers' lock is held from before the former store is dumped until the other dump has replaced it. Event ids
    continue above the former ones, and the first events tell every follower, as after the restore of a file.

    Raises VALIDATION_ERROR for a file that is not a dump of a store, MIGRATION_ERROR for one of a newer version,
    DB_ERROR for a store in use or programs that are missing, too old, or fail.
    """
    config = CoreSettings.current()
    if not path.is_file():
        raise invalid(f"There is no backup at {path}.")
    if not into_running:
        refuse_in_use(users_of_server(config.home))
    made = examined(path)
    refuse_other_version(path, made.applied)
    if into_running and (older := pending_migrations(made.applied)):
        raise refuse_older(older)
    store().prepare()
    kept = config.home / "backups" / f"nexus-{stamp()}.replaced.dump"
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone() as psql:
        back_up(kept)
        name = _schema()
        schema = connection.ops.quote_name(name)
        tables = [connection.ops.quote_name(table) for table in connection.introspection.django_table_names()]
        head = max(made.given_out, store().given_out(Event))
        # Drop also what a later version added, which the dump does not have: the next start creates it again.
        psql.write("".join(f"DROP TABLE IF EXISTS {schema}.{table} CASCADE;\n" for table in tables).encode())
        # An older backup contains extensions, too, which only their owner may drop.
        with _reading(path, f"--schema={name}", "--clean", "--if-exists", "--no-owner", "--no-privileges") as lines:
            psql.writelines(lines)
        psql.write(_after(schema, made.given_out, head).encode())
    return Restored(made.rows, kept, True)


def _after(schema: str, restored_to: int, head: int) -> str:
    """Return the SQL that ends the transaction: event ids continue above `head`, and every stream gets an event about
    the restore."""
    values = ", ".join(map(_quoted, [RESTORED, restoration(restored_to, head), "public", now().isoformat()]))
    return f"""
        SET search_path = {schema};
        SELECT setval(pg_get_serial_sequence('events', 'event_id'), {max(head, 1)}, {str(head > 0).lower()});
        INSERT INTO events (workspace_id, stream, type, payload, visibility, created_at)
            SELECT number, stream, {values}
            FROM (SELECT number FROM workspaces UNION ALL SELECT NULL) AS places,
                unnest(ARRAY[{", ".join(map(_quoted, streams()))}]) AS stream
            ORDER BY number;
        SELECT pg_notify('{CHANNEL}', '');
        COMMIT;
    """  # noqa: S608


def _schema() -> str:
    """Return the name of the schema of the store's tables."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return str(cursor.fetchone()[0])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _alone() -> Iterator[IO[bytes]]:
    """Yield the input of a psql that holds the writers' lock in a transaction. What is written to it must commit the
    transaction.

    Any error in the block, or in psql, rolls back. Raises DB_ERROR.
    """
    command = ["psql", "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", _address()]
    _refuse_older_program("psql")
    with start(command, cwd=NEUTRAL, env=_environment(), stdin=PIPE, stdout=PIPE, stderr=PIPE) as process:
        try:
            process.stdin.write(BEGIN.format(patience=CoreSettings.current().busy_timeout_ms).encode())
            process.stdin.flush()
            if process.stdout.readline().strip() != LOCKED.encode():
                raise _busy()
            yield process.stdin
        except BrokenPipeError:
            pass  # psql has ended; its stderr has the reason
        except BaseException:
            process.kill()  # ends its transaction
            raise
        finally:
            with suppress(BrokenPipeError):  # an ended psql did not read the rest
                process.stdin.close()
        said = process.stderr.read().decode(errors="replace")
        if process.wait():
            raise _busy() if "lock timeout" in said else _failed("psql", said)


def _busy() -> NexusError:
    return NexusError(
        Code.DB_ERROR,
        "Somebody else uses the tables of the store. Nothing was restored: try again in a moment.",
        {"retryable": True},
    )


@contextmanager
def _reading(path: Path, *options: str) -> Iterator[IO[bytes]]:
    """Yield the lines of a dump as SQL. Raises VALIDATION_ERROR at the end if pg_restore could not read all of it."""
    _refuse_older_program("pg_restore")
    command = ["pg_restore", *options, "--file=-", str(path.absolute())]
    with start(command, cwd=NEUTRAL, env=_environment(), stdout=PIPE) as process:
        yield process.stdout
        if process.wait():
            raise invalid(f"{path} is not a complete backup of a store on PostgreSQL. Nothing was changed.")


def _run(program: str, *arguments: str) -> None:
    _refuse_older_program(program)
    command = [program, *arguments]
    done = run(command, cwd=NEUTRAL, env=_environment(), seconds=DUMP_SECONDS, largest=LARGEST)
    if done.code:
        raise _failed(program, done.errors.decode(errors="replace"))


def _failed(program: str, said: str) -> NexusError:
    first = next((line for line in said.splitlines() if "error" in line.lower()), "").strip()
    return NexusError(Code.DB_ERROR, f"{program} failed, and nothing was changed. It says: {first[:300]}")


def _refuse_older_program(program: str) -> None:
    """Check a program of PostgreSQL's client. Raises DB_ERROR if it is missing, or older than the server."""
    try:
        command = [program, "--version"]
        said = run(command, cwd=NEUTRAL, env=environment(), seconds=VERSION_SECONDS, largest=LARGEST).output
        major = int(re.search(rb"\) (\d+)", said)[1])  # type: ignore[index]
    except (OSError, TypeError):
        raise NexusError(
            Code.DB_ERROR,
            f"{program} is not there: backups of a store on PostgreSQL need its client programs. "
            "Install them (Debian: apt install postgresql-client).",
            {"cause": "missing_program"},
        ) from None
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('server_version_num')::int / 10000")
        (server,) = cursor.fetchone()
    if major < server:
        raise NexusError(
            Code.DB_ERROR,
            f"{program} is of PostgreSQL {major} and the server is of {server}: install its client programs of "
            f"{server} or newer.",
            {"cause": "old_program"},
        )


def _connection() -> dict[str, Any]:
    url = CoreSettings.current().database_url
    assert url is not None
    name = "target_session_attrs"
    return {name: DEFAULTS[name], **conninfo_to_dict(url)}  # the server that the hub uses


def _address() -> str:
    """Return the connection string without its secrets."""
    return make_conninfo(**{name: value for name, value in _connection().items() if name not in SECRETS})


def _environment() -> dict[str, str]:
    password = _connection().get("password")
    libpq = (name for name in os.environ if name.startswith(LIBPQ))
    return environment("HOME", *libpq) | ({"PGPASSWORD": str(password)} if password else {})
