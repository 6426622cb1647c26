"""Checks of the store's content."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from django.apps import apps
from django.db import connection

from nexus.core.apps import nexus_apps, own_labels
from nexus.core.contributions import Finding
from nexus.core.database.migrations import pending_migrations, unknown_migrations
from nexus.maintenance import store_file
from nexus.maintenance.findings import Examination, FileExamination

CLOCK_STEP = timedelta(hours=2)  # tolerated change of the clock
CLOCK_SLACK = timedelta(minutes=5)
STOP = "Stop every Nexus process before more is written. Below is what can still be read."


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
            "Take a `nexus backup`; the next start of Nexus migrates it.",
        )


def schema(examination: Examination) -> Iterator[Finding]:
    """Check that every table, index and trigger of this version exists."""
    applied = examination.applied()
    if unknown_migrations(applied) or _own(pending_migrations(applied)):
        return  # the models describe another version
    present = examination.names()
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
            if index.name not in present:
                yield Finding(
                    f"The index {index.name} is missing.",
                    "Answers are right, and slow.",
                    examination.repair(str(index.create_sql(model, connection.schema_editor(collect_sql=True)))),
                    "the index was built again",
                )


def integrity(examination: FileExamination) -> Iterator[Finding]:
    """Check that every page, index entry and constraint is intact."""
    faults = store_file.integrity_faults(examination.connection, examination.progress, quick=examination.quick)
    if not faults:
        return
    of_indexes = all(re.search(r"\bindex\b", fault) for fault in faults)
    yield Finding(
        f"The integrity check finds {len(faults)} faults: {'; '.join(faults[:5])}.",
        "Only indexes are wrong, which are built from the tables again." if of_indexes else STOP,
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


def event_ids(examination: FileExamination) -> Iterator[Finding]:
    """Check that event ids have no gaps. Only retention removes events, the oldest first.

    Not a gap: ids before the oldest event, once a retention pass ran; ids beside events that are at most two hours
    younger than the oldest (the clock may have been moved); and ids up to the end of a replayed history.
    """
    if "events" not in examination.tables():
        return
    oldest = examination.value("SELECT min(created_at) FROM events")
    pruned = examination.given_out("retention_passes")
    replayed = examination.value("PRAGMA user_version")
    for first, last, before in _missing(examination):
        by_retention = pruned and (before is None or _moment(before) <= _moment(oldest) + CLOCK_STEP)
        if last <= replayed or by_retention:
            continue
        yield Finding(
            f"Events {first} to {last} are missing." if last > first else f"Event {first} is missing.",
            "Ids are given out without gaps and only retention removes events, the oldest ones: these were removed by "
            "another program, or by damage. Agents are not disturbed; restore a backup if the history matters.",
        )


def _missing(examination: FileExamination) -> Iterator[tuple[int, int, str | None]]:
    """Yield each run of missing ids, first and last, with the time of the event before it; None before the oldest."""
    gaps = f"""
        SELECT event_id, before, stamp FROM (
            SELECT event_id, lag(event_id) OVER log AS before, lag(created_at) OVER log AS stamp
            FROM {examination.sample("events")} WINDOW log AS (ORDER BY event_id)
        ) WHERE event_id - coalesce(before, 0) > 1
    """  # noqa: S608
    for event_id, before, stamped in examination.rows(gaps):
        if before is None and examination.quick:
            continue  # the sample begins there
        yield (before or 0) + 1, event_id - 1, stamped
    newest = examination.rows("SELECT event_id, created_at FROM events ORDER BY event_id DESC LIMIT 1")
    previous, stamp = newest[0] if newest else (0, None)
    given_out = examination.given_out("events")
    if given_out > previous:
        yield previous + 1, given_out, stamp


def impossible_rows(examination: Examination) -> Iterator[Finding]:
    """Check that no row is in a state that no operation leaves behind."""
    tables = examination.tables()
    states = [state for app in nexus_apps() for state in app.impossible_states()]
    for state in (state for state in states if state.table in tables):
        count = examination.value(f"SELECT count(*) FROM {examination.sample(state.table)} WHERE {state.where}")  # noqa: S608
        if count:
            yield Finding(
                f"{count} rows of {state.table} are {state.what}.",
                "Another program wrote them: nothing in Nexus does, and the schema refuses it.",
                examination.repair(f"UPDATE {state.table} SET {state.change} WHERE {state.where}"),  # noqa: S608
                state.mending,
            )
    if "retention_passes" in tables and (count := examination.value("SELECT count(*) FROM retention_passes")):
        yield Finding(
            f"{count} retention passes were left open: events may be deleted by anybody.",
            "A pass closes itself in the transaction that opened it; another program left these.",
            examination.repair("DELETE FROM retention_passes"),
            "the passes were closed",
        )


def clock(examination: Examination) -> Iterator[Finding]:
    """Check that nothing has a time in the future."""
    columns = {table: column for app in nexus_apps() for table, column in app.clock_columns.items()}
    for table in sorted(columns.keys() & examination.tables()):
        latest = examination.value(f"SELECT max({columns[table]}) FROM {examination.sample(table)}")  # noqa: S608
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
