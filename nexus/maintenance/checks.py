"""The checks of `nexus doctor`: of the store as a file, of its home and its users, which need no readable store; and
of its content."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sqlite3
import ssl
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from django.apps import apps
from django.db import connection
from django.db.models import Field

from nexus.core import instance, outward
from nexus.core.apps import nexus_apps, own_labels
from nexus.core.contributions import Finding
from nexus.core.database.migrations import (
    MIGRATE_FIRST,
    pending_migrations,
    replaced_and_pending,
    unknown_migrations,
)
from nexus.core.database.sqlite.errors import HEADER, beside, first_bytes, log_is_missing
from nexus.core.files import network_kind
from nexus.core.operations.errors import NexusError
from nexus.core.processes import CODE
from nexus.hooks import problems
from nexus.maintenance import store_file
from nexus.maintenance.backup import checked
from nexus.maintenance.check_inputs import Examination, FileExamination, Home

LOG_LIMIT = 64 << 20  # bytes; a healthy log is checkpointed every few megabytes
ROOM_LIMIT = 64 << 20  # bytes
ABANDONED_SECONDS = 3600  # a partial file that has not changed for so long is abandoned
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def permissions(home: Home) -> Iterator[Finding]:
    """Check that the home and its files belong to one user, and that nobody else can read them."""
    directories = [home.path, home.path / "backups"]  # the home's mode protects other directories
    files = {path for directory in directories for path in directory.glob("*") if path.is_file()}
    files |= {home.database, *(beside(home.database, suffix) for suffix in ("-wal", "-shm"))}
    locked = [path for path in directories if not os.access(path, os.W_OK)]  # then nothing in it can be written
    for path in sorted(path for path in {*directories, *files} if path.exists() and not path.is_symlink()):
        status = path.stat()
        if status.st_mode & OTHERS:
            wanted = 0o700 if path.is_dir() else 0o600
            yield Finding(
                f"{path} may be used by others than its owner (mode {stat.S_IMODE(status.st_mode):04o}).",
                f"Whoever reads the store reads every message. Run `chmod {wanted:o} {path}`.",
                partial(path.chmod, wanted),
                f"the mode was set to {wanted:o}",
            )
        if status.st_uid != os.geteuid():
            yield Finding(
                f"{path} belongs to another user (uid {status.st_uid}).",
                "Run Nexus as that user, or give the file to the user that runs it with `chown`.",
            )
        if not os.access(path, os.W_OK) and path.parent not in locked:
            yield Finding(
                f"{path} cannot be written by this user.",
                "Nexus can neither start nor write there; hooks and the guard only read. Make it writable, or look why "
                "its disk is mounted read-only, as in an agent's sandbox.",
            )


def failing_hooks(home: Home) -> Iterator[Finding]:
    """Check that no hook of a client or of git has failed lately."""
    for each in problems.failing(home.path):
        yield Finding(
            f"{each.title}, in {each.project_root}: {each.advice}.",
            f"It last happened at {each.since:%Y-%m-%d %H:%M} UTC. `nexus setup --check` in that project says what is "
            "missing; *Needs a person* in the admin dismisses it.",
        )


def imports(_: Home) -> Iterator[Finding]:
    """Check which packages on PYTHONPATH have names of ours."""
    ours = sorted({app.name.partition(".")[0] for app in nexus_apps()})
    for entry in map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))):
        found = [name for name in ours if (entry / name).is_dir() or (entry / f"{name}.py").is_file()]
        if found and entry.resolve() != Path(CODE):
            yield Finding(
                f"{entry}, on PYTHONPATH, has packages with names of Nexus's: {', '.join(found)}.",
                f"Nexus imports its own, in {CODE}. Leave that directory out of PYTHONPATH where another program, "
                "such as your ASGI server, imports Nexus.",
                note=True,
            )


def ways_out(_: Home) -> Iterator[Finding]:
    """Check that the proxy and the certificates of the variables can be used."""
    file, proxy = outward.certificates(), outward.proxy_of("https://github.com")
    try:
        ssl.create_default_context(cafile=file)
    except OSError as error:
        yield Finding(
            f"The certificates in {file} cannot be read ({error.strerror or error}).",
            "Nothing outside this machine is trusted then: no forge, webhook, notice or model is reached. Correct "
            f"{' or '.join(name for name in outward.CERTIFICATES if os.environ.get(name) == file)}, or unset it.",
        )
    try:
        address = urlsplit(proxy or "").netloc.rpartition("@")[2]
    except ValueError:
        yield Finding(
            "The variables name a proxy whose address is malformed.",
            "Nothing outside this machine is reached then. Correct HTTPS_PROXY: it has the form http://host:port, and "
            "a sign such as [ or / in its password is written as %5B or %2F.",
        )
        return
    if proxy is not None and file is None and "SSL_CERT_DIR" not in os.environ:
        yield Finding(
            f"Other machines are reached through the proxy {address}, and known by the system's certificates.",
            "If the proxy opens TLS, name the file with its CA's certificate: SSL_CERT_FILE=FILE, for the hub, too.",
            note=True,
        )


def room(home: Home) -> Iterator[Finding]:
    """Check that the disk has space left."""
    free = shutil.disk_usage(home.database.parent).free
    if free < ROOM_LIMIT:
        yield Finding(
            f"Only {free >> 20} MiB are free on the disk of the store.",
            "Writes fail once it is full, and shrinking the store takes room too. Move old backups elsewhere, or "
            "free space another way; then `nexus prune --vacuum`.",
        )


def network(home: Home) -> Iterator[Finding]:
    """Check that the store is on a local disk."""
    if kind := network_kind(home.database):
        yield Finding(
            f"{home.database} is on a network file system ({kind}), where SQLite's locks do not hold.",
            "Processes on several machines damage it. Stop them, move the home to a local disk, or the store to "
            "PostgreSQL with `nexus migrate-store`.",
        )


def servers(home: Home) -> Iterator[Finding]:
    """Check that one server at a time serves the store."""
    pids = {pid for pid, command in store_file.holders(home.database).items() if " serve" in command}
    holder = instance.running(home.path)
    if holder:
        pids.add(holder.pid)
    if len(pids) > 1:
        yield Finding(
            f"{len(pids)} servers use this store (processes {', '.join(map(str, sorted(pids)))}).",
            "The lock of a home admits one; another home with the same --db-path got round it. Stop all but one.",
        )


def log_size(home: Home) -> Iterator[Finding]:
    """Check that the write-ahead log is written back into the store from time to time."""
    log = beside(home.database, "-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > LOG_LIMIT:
        yield Finding(
            f"The write-ahead log has {size >> 20} MiB.",
            "Something keeps reading an old state, so that the log cannot be written back; every read gets slower. "
            "Look for a process that hangs, and restart it.",
            partial(_write_back, home.database),
            "the log was written back into the store",
        )


def leftovers(home: Home) -> Iterator[Finding]:
    """Check that no killed backup or restore left a half-written file."""
    for path in sorted([*home.path.glob(".*.partial*"), *home.path.glob("backups/.*.partial*")]):
        if home.moment.timestamp() - path.stat().st_mtime > ABANDONED_SECONDS:
            yield Finding(
                f"{path} is left of a backup or restore that was killed.",
                "Nothing uses it. Delete it.",
                partial(path.unlink, missing_ok=True),
                "it was deleted",
            )


def lost_log(home: Home) -> Iterator[Finding]:
    """Check that the write-ahead log of a store that is in use, or was not closed, lies beside it."""
    if log_is_missing(home.database):
        index = beside(home.database, "-shm")
        yield Finding(
            "The write-ahead log was removed while its index is still there: the commits in it are missing.",
            "Put the file ending in -wal back if you have it. Otherwise restore a backup, or go on with the store as "
            "of its last checkpoint.",
            None if store_file.holders(home.database) else index.unlink,
            "the index of the lost log was removed, so that Nexus starts with the state before it",
        )


def header(home: Home) -> Iterator[Finding]:
    """Check that the file is an SQLite database, and as long as its header says."""
    size, expected = home.database.stat().st_size, expected_size(home.database)
    if not size:
        yield Finding(
            "The file is empty.",
            f"If it was never written, delete it. If it was cut to nothing: {what_helps(home)}",
        )
    elif expected is None:
        yield Finding(
            "The file is not an SQLite database, or its beginning was overwritten.",
            f"If it never was a store, point --db-path at the right file. If it was: {what_helps(home)}",
        )
    elif size < expected:
        yield Finding(
            f"The file was cut short: {size} bytes of {expected} are left.",
            what_helps(home),
        )


def expected_size(database: Path) -> int | None:
    """Return the minimum size of the file in bytes; None if it is not SQLite's."""
    start = first_bytes(database, 100)
    if not start.startswith(HEADER):
        return None
    if beside(database, "-wal").exists():
        return 0  # the end may be in the log
    page = int.from_bytes(start[16:18], "big")
    return int.from_bytes(start[28:32], "big") * (65536 if page == 1 else page)


def what_helps(home: Home) -> str:
    """Return the advice for a store that is damaged: which backup to restore, or what may read the rest."""
    stop = "Stop every Nexus process before more is written."
    for path in sorted(home.path.glob("backups/*.db"), key=lambda path: path.stat().st_mtime, reverse=True):
        with contextlib.suppress(NexusError, OSError, sqlite3.Error):
            checked(path)
            return f"{stop} Restore a backup. The newest whole one is {path}: `nexus restore {path}`."
    return f"{stop} Restore a backup; the home has none. SQLite's own program may read the rest: `.recover` in sqlite3."


def _write_back(database: Path) -> None:
    with contextlib.closing(store_file.open_store(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


CLOCK_STEP = timedelta(hours=2)  # tolerated change of the clock
CLOCK_SLACK = timedelta(minutes=5)


def versions(examination: Examination) -> Iterator[Finding]:
    """Check that the store and the code have the same version."""
    applied = examination.applied()
    if not _own(applied):
        yield Finding("It holds no store of Nexus.", "Point --home, --db-path or --database-url at the right one.")
        return
    if newer := sorted(map(".".join, unknown_migrations(applied))):
        yield Finding(
            f"The store was written by a newer version (it has {', '.join(newer)}).",
            "Upgrade Nexus; this version refuses to start on it.",
        )
    if pending := sorted(map(".".join, _own(pending_migrations(applied)))):
        yield Finding(
            f"The store is of an older version (it lacks {', '.join(pending)}).",
            MIGRATE_FIRST
            if replaced_and_pending(applied)
            else "Take a `nexus backup`; the next start of Nexus migrates it.",
        )


def schema(examination: Examination) -> Iterator[Finding]:
    """Check that every table, index and trigger of this version exists, and each index on its columns."""
    applied = examination.applied()
    if unknown_migrations(applied) or _own(pending_migrations(applied)):
        return  # the models describe another version
    present, indexed = examination.names(), examination.index_columns()
    for name, mend in examination.faulty_triggers().items():
        yield Finding(
            f"The trigger {name} is {'not as it should be' if name in present else 'missing'}.",
            "It keeps the event log append-only or the search in step; without it history can be changed.",
            mend,
            "the trigger was made again",
        )
    for model in (model for app in own_labels() for model in apps.get_app_config(app).get_models()):
        if model._meta.db_table not in present:
            yield Finding(f"The table {model._meta.db_table} is missing.", "Restore a backup.")
            continue
        for index in model._meta.indexes:
            own = [model._meta.get_field(name) for name, _ in index.fields_orders]
            wanted = [field.column for field in own if isinstance(field, Field)]
            if index.name not in indexed or indexed[index.name] != wanted:
                create = index.create_sql(model, connection.schema_editor(collect_sql=True))
                yield Finding(
                    f"The index {index.name} is {'on other columns' if index.name in indexed else 'missing'}.",
                    "Answers are right, and slow.",
                    examination.repair(f"DROP INDEX IF EXISTS {index.name}", str(create)),
                    "the index was built again",
                )


def integrity(examination: FileExamination) -> Iterator[Finding]:
    """Check that every page, index entry and constraint is intact."""
    faults = store_file.integrity_faults(examination.connection, examination.progress)
    if not faults:
        return
    of_indexes = all(re.search(r"\bindex\b", fault) for fault in faults)
    yield Finding(
        f"The integrity check finds {len(faults)} faults: {'; '.join(faults[:5])}.",
        "Only indexes are wrong, which are built from the tables again." if of_indexes else what_helps(examination),
        examination.repair("REINDEX") if of_indexes else None,
        "the indexes were built again",
    )


def references(examination: FileExamination) -> Iterator[Finding]:
    """Check that every reference leads to a row."""
    dangling = store_file.dangling_references(examination.connection, examination.progress)
    for (table, parent), count in dangling.items():
        hint = (
            " Registering those agents again (`agent_register` with the same id) heals them."
            if parent == "agents"
            else ""
        )
        yield Finding(
            f"{count} rows of {table} refer to rows of {parent} that are not there.",
            f"They were removed by another program, or by damage. Restore a backup if you miss them.{hint}",
        )


def open_passes(examination: Examination) -> Iterator[Finding]:
    """Check that no retention pass is open, which permits the deletion of events."""
    tables = examination.tables()
    if "retention_passes" in tables and (count := examination.value("SELECT count(*) FROM retention_passes")):
        yield Finding(
            f"{count} retention passes were left open: events may be deleted by anybody.",
            "A pass closes itself in the transaction that opened it; another program left these.",
            examination.repair("DELETE FROM retention_passes"),
            "the passes were closed",
        )


# What agents still need of a project `w`, by what it is.
OF_PROJECT = "x.workspace_id = w.workspace_id"
OPEN_WORK = {
    "open handoffs": f"handoffs x WHERE {OF_PROJECT}"
    " AND x.status NOT IN ('COMPLETED', 'REJECTED', 'CANCELLED', 'EXPIRED')",
    "reservations": f"file_reservations x WHERE {OF_PROJECT} AND x.released_at IS NULL",
    "tasks": f"plan_tasks x WHERE {OF_PROJECT} AND x.closed_at IS NULL",
    "worktrees": "pool_worktrees x WHERE x.origin = w.root_realpath AND x.state = 'open'",
}


def projects(examination: FileExamination) -> Iterator[Finding]:
    """Check that the directories of projects with open work are there."""
    if not {"workspaces", *(rows.partition(" ")[0] for rows in OPEN_WORK.values())} <= examination.tables():
        return
    counts = ", ".join(f"(SELECT count(*) FROM {rows})" for rows in OPEN_WORK.values())  # noqa: S608
    for root, *counted in examination.rows(f"SELECT w.root_realpath, {counts} FROM workspaces w"):  # noqa: S608
        work = ", ".join(f"{count} {what}" for what, count in zip(OPEN_WORK, counted, strict=True) if count)
        if work and not Path(root).is_dir():
            yield Finding(
                f"The directory {root} is gone, and {work} belong to it.",
                f"If it was renamed, run `nexus workspaces move {shlex.quote(root)} NEW`, with its new path.",
                note=True,
            )


def clock(examination: Examination) -> Iterator[Finding]:
    """Check that nothing has a time in the future."""
    columns = {table: column for app in nexus_apps() for table, column in app.clock_columns.items()}
    for table in sorted(columns.keys() & examination.tables()):
        latest = examination.value(f"SELECT max({columns[table]}) FROM {table}")  # noqa: S608
        ahead = _moment(latest) - examination.moment if latest else timedelta()
        if ahead > CLOCK_SLACK:
            yield Finding(
                f"The latest row of {table} is from the future: {latest} UTC, {ahead} from now.",
                "The clock is wrong, or was when that was written; check it (`timedatectl`). Until then sessions look "
                "present and leases hold longer than they should."
                + (" A step of an hour or two heals by itself." if ahead <= CLOCK_STEP else ""),
                note=ahead <= CLOCK_STEP,
            )


def _own(rows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {row for row in rows if row[0] in own_labels()}


def _moment(found: str | datetime) -> datetime:
    """Return a time from the database: SQLite has it as text, in UTC."""
    return found if isinstance(found, datetime) else datetime.fromisoformat(found).replace(tzinfo=UTC)
