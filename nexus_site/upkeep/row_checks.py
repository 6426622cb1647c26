"""The checks of what the store holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.apps import apps
from django.db import connection, migrations
from django.db.migrations.loader import MigrationLoader

from coordination import store
from nexus_site.upkeep import store_file
from nexus_site.upkeep.findings import Finding, Patient

CLOCK_STEP = timedelta(hours=2)  # how far a clock may have been moved without spoiling anything for good
CLOCK_SLACK = timedelta(minutes=5)
TRIGGER = re.compile(r'CREATE\s+TRIGGER\s+(?:IF\s+NOT\s+EXISTS\s+)?"?(\w+)"?.*?\bEND\b', re.IGNORECASE | re.DOTALL)
STOP = "Stop every Nexus process before more is written. Below is what can still be read."


def versions(patient: Patient) -> Iterator[Finding]:
    """The store and the code are of one version."""
    applied = _own(store_file.migrations(patient.connection))
    shipped = _own(store.shipped_migrations())
    if not applied:
        yield Finding("The file holds no store of Nexus.", "Point --home or --db-path at the right one.")
        return
    if newer := sorted(applied - shipped):
        yield Finding(
            f"The store was written by a newer version (it has {_listed(newer)}).",
            "Upgrade Nexus; this version refuses to start on it.",
        )
    if pending := sorted(shipped - applied):
        yield Finding(
            f"The store is of an older version (it lacks {_listed(pending)}).",
            "Take a `nexus backup`; the next start of Nexus migrates it.",
        )


def schema(patient: Patient) -> Iterator[Finding]:
    """Every table, index and trigger of this version is there."""
    applied = _own(store_file.migrations(patient.connection))
    present = {name for _, name, _ in store_file.schema(patient.connection)}
    for name, statement in _triggers(applied).items():
        if name not in present:
            yield Finding(
                f"The trigger {name} is missing.",
                "It keeps the event log append-only; without it nothing stops a hand from changing history.",
                patient.repair(statement),
                "the trigger was made again",
            )
    if applied != _own(store.shipped_migrations()):
        return  # the models describe another version
    for model in (model for app in store.OWN_APPS for model in apps.get_app_config(app).get_models()):
        if model._meta.db_table not in present:
            yield Finding(f"The table {model._meta.db_table} is missing.", "Restore a backup.")
            continue
        for index in model._meta.indexes:
            if index.name not in present:
                yield Finding(
                    f"The index {index.name} is missing.",
                    "Answers are right, and slow.",
                    patient.repair(str(index.create_sql(model, connection.schema_editor(collect_sql=True)))),
                    "the index was built again",
                )


def integrity(patient: Patient) -> Iterator[Finding]:
    """Every page, index entry and constraint is as SQLite wrote it."""
    faults = store_file.integrity_faults(patient.connection)
    if not faults:
        return
    of_indexes = all(re.search(r"\bindex\b", fault) for fault in faults)
    yield Finding(
        f"The integrity check finds {len(faults)} faults: {'; '.join(faults[:5])}.",
        "Only indexes are wrong, which are built from the tables again." if of_indexes else STOP,
        patient.repair("REINDEX") if of_indexes else None,
        "the indexes were built again",
    )


def references(patient: Patient) -> Iterator[Finding]:
    """Every row that refers to another finds it."""
    for (table, parent), count in store_file.dangling_references(patient.connection).items():
        hint = (
            " Registering those agents again (`agent_register` with the same id) heals them."
            if parent == "agents"
            else ""
        )
        yield Finding(
            f"{count} rows of {table} refer to rows of {parent} that are not there.",
            f"They were removed by another program, or by damage. Restore a backup if you miss them.{hint}",
        )


def event_ids(patient: Patient) -> Iterator[Finding]:
    """Events are numbered without gaps, and only retention removes any: the oldest.

    No gap is: what is missing before the oldest event once a retention pass ran, or beside events that are no more
    than two hours younger than it (the clock may have been moved), or up to the end of a history that was replayed.
    """
    if "events" not in patient.tables():
        return
    oldest = patient.value("SELECT min(created_at) FROM events")
    pruned = patient.value("SELECT seq FROM sqlite_sequence WHERE name = 'retention_passes'") or 0
    replayed = patient.value("PRAGMA user_version")
    for first, last, before in _missing(patient):
        by_retention = pruned and (before is None or _moment(before) <= _moment(oldest) + CLOCK_STEP)
        if last <= replayed or by_retention:
            continue
        yield Finding(
            f"Events {first} to {last} are missing." if last > first else f"Event {first} is missing.",
            "Ids are given out without gaps and only retention removes events, the oldest ones: these were removed by "
            "another program, or by damage. Agents are not disturbed; restore a backup if the history matters.",
        )


def _missing(patient: Patient) -> Iterator[tuple[int, int, str | None]]:
    """Each run of missing ids, first to last, and the time of the event before it; None before the oldest."""
    gaps = """
        SELECT event_id, before, stamp FROM (
            SELECT event_id, lag(event_id) OVER log AS before, lag(created_at) OVER log AS stamp
            FROM events WINDOW log AS (ORDER BY event_id)
        ) WHERE event_id - coalesce(before, 0) > 1
    """
    for event_id, before, stamped in patient.rows(gaps):
        yield (before or 0) + 1, event_id - 1, stamped
    newest = patient.rows("SELECT event_id, created_at FROM events ORDER BY event_id DESC LIMIT 1")
    previous, stamp = newest[0] if newest else (0, None)
    given_out = patient.value("SELECT seq FROM sqlite_sequence WHERE name = 'events'") or 0
    if given_out > previous:
        yield previous + 1, given_out, stamp


@dataclass(frozen=True)
class Impossible:
    """A state that no operation leaves behind, and the change that brings the row back among the possible ones."""

    table: str
    what: str
    where: str
    change: str
    mending: str


IMPOSSIBLE = (
    Impossible(
        "handoffs",
        "claimed without a claimant or a lease",
        "status = 'CLAIMED' AND (claimed_by IS NULL OR lease_expires_at IS NULL)",
        "claimed_by = coalesce(claimed_by, 'unknown'), lease_expires_at = created_at",
        "their lease was made to have lapsed, so that the next look opens them again",
    ),
    Impossible(
        "handoffs",
        "open with a claimant or a lease",
        "status = 'OPEN' AND (claimed_by IS NOT NULL OR lease_expires_at IS NOT NULL)",
        "claimed_by = NULL, lease_expires_at = NULL",
        "claimant and lease were taken off",
    ),
    Impossible(
        "handoffs",
        "settled with a lease",
        "status IN ('COMPLETED', 'REJECTED', 'CANCELLED') AND lease_expires_at IS NOT NULL",
        "lease_expires_at = NULL",
        "the lease was taken off",
    ),
    Impossible(
        "message_deliveries",
        "in flight without a lease",
        "status = 'delivered' AND (lease_expires_at IS NULL OR delivered_at IS NULL)",
        "delivered_at = coalesce(delivered_at, created_at), lease_expires_at = coalesce(lease_expires_at, created_at)",
        "their lease was made to have lapsed, so that the next pull hands them out again",
    ),
    Impossible(
        "message_deliveries",
        "acknowledged without a time",
        "status = 'read' AND read_at IS NULL",
        "read_at = coalesce(delivered_at, created_at)",
        "the time of their delivery was taken",
    ),
    Impossible(
        "message_deliveries",
        "out of flight with a lease",
        "status <> 'delivered' AND lease_expires_at IS NOT NULL",
        "lease_expires_at = NULL",
        "the lease was taken off",
    ),
    Impossible(
        "sessions",
        "closed without a time",
        "status = 'closed' AND closed_at IS NULL",
        "closed_at = last_heartbeat_at",
        "the time of their last heartbeat was taken",
    ),
    Impossible(
        "sessions",
        "active with a time of closing",
        "status = 'active' AND closed_at IS NOT NULL",
        "closed_at = NULL",
        "the time was taken off",
    ),
)


def impossible_rows(patient: Patient) -> Iterator[Finding]:
    """No row is in a state that no operation leaves behind."""
    tables = patient.tables()
    for state in (state for state in IMPOSSIBLE if state.table in tables):
        count = patient.value(f"SELECT count(*) FROM {state.table} WHERE {state.where}")  # noqa: S608
        if count:
            yield Finding(
                f"{count} rows of {state.table} are {state.what}.",
                "Another program wrote them: nothing in Nexus does, and the schema refuses it.",
                patient.repair(f"UPDATE {state.table} SET {state.change} WHERE {state.where}"),  # noqa: S608
                state.mending,
            )
    if "retention_passes" in tables and (count := patient.value("SELECT count(*) FROM retention_passes")):
        yield Finding(
            f"{count} retention passes were left open: events may be deleted by anybody.",
            "A pass closes itself in the transaction that opened it; another program left these.",
            patient.repair("DELETE FROM retention_passes"),
            "the passes were closed",
        )
    if {"handoffs", "events"} <= tables:
        unborn = """SELECT count(*) FROM handoffs
            WHERE created_event_id > (SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events')"""
        if count := patient.value(unborn):
            yield Finding(
                f"{count} handoffs name an event that was never written.",
                "Lists that page through handoffs may skip them. Restore a backup, or cancel and create them again.",
            )


TIMES = {
    "events": "created_at",
    "messages": "created_at",
    "message_deliveries": "created_at",
    "handoffs": "updated_at",
    "sessions": "last_heartbeat_at",
    "artifacts": "created_at",
}


def clock(patient: Patient) -> Iterator[Finding]:
    """Nothing was written in the future."""
    for table in sorted(TIMES.keys() & patient.tables()):
        latest = patient.value(f"SELECT max({TIMES[table]}) FROM {table}")  # noqa: S608
        ahead = _moment(latest) - patient.moment if latest else timedelta()
        if ahead > CLOCK_SLACK:
            yield Finding(
                f"The latest row of {table} is from the future: {latest} UTC, {ahead} from now.",
                "The clock is wrong, or was when that was written; check it (`timedatectl`). Until then sessions look "
                "present and leases hold longer than they should."
                + (" A step of an hour or two heals by itself." if ahead <= CLOCK_STEP else ""),
                note=ahead <= CLOCK_STEP,
            )


def _triggers(applied: set[tuple[str, str]]) -> dict[str, str]:
    """The triggers that the applied migrations made, with the statement of each."""
    found = {}
    disk = MigrationLoader(None).disk_migrations
    for step in (disk[key] for key in sorted(applied) if key in disk):
        for operation in step.operations:
            if isinstance(operation, migrations.RunSQL) and isinstance(operation.sql, str):
                found.update({match[1]: match[0] for match in TRIGGER.finditer(operation.sql)})
    return found


def _own(rows: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {row for row in rows if row[0] in store.OWN_APPS}


def _listed(rows: list[tuple[str, str]]) -> str:
    return ", ".join(".".join(row) for row in rows)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)
