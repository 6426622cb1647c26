"""The examination: one function per check, and what each finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from core.apps import nexus_apps
from core.clock import now
from core.contributions import Finding
from core.database import store
from core.operations.errors import Code, NexusError
from maintenance import file_checks, row_checks, salvage, store_file
from maintenance.findings import Examination, Home

FILE_CHECKS: dict[str, Callable[[Home], Iterator[Finding]]] = {
    "permissions": file_checks.permissions,
    "disk space": file_checks.room,
    "servers": file_checks.servers,
    "leftovers": file_checks.leftovers,
    "log": file_checks.lost_log,
    "log size": file_checks.log_size,
    "file": file_checks.header,
}
STORE_CHECKS: dict[str, Callable[[Examination], Iterator[Finding]]] = {
    "version": row_checks.versions,
    "schema": row_checks.schema,
    "integrity": row_checks.integrity,
    "references": row_checks.references,
    "event ids": row_checks.event_ids,
    "impossible rows": row_checks.impossible_rows,
    "clock": row_checks.clock,
}


@dataclass(frozen=True)
class Diagnosis:
    """A finding and the check that made it."""

    check: str
    finding: Finding


def examine(home: Path, database: Path) -> list[Diagnosis]:
    """Run every check. Raises DB_ERROR when there is nothing to examine, or others keep it locked."""
    if not database.is_file():
        raise NexusError(Code.DB_ERROR, f"There is no store at {database}. Check --home and --db-path.")
    with store_file.explained(f"{database} cannot be examined."):
        place = Home(home, database, now())
        found = [Diagnosis(name, finding) for name, check in FILE_CHECKS.items() for finding in check(place)]
        found += _examine_store(place)
        if any(diagnosis.check in ("integrity", "file") and not diagnosis.finding.mend for diagnosis in found):
            found.append(Diagnosis("salvage", _prospects(place)))
    return found


def mend(diagnosis: Diagnosis) -> str:
    """Do what is safe about a finding; what was done, or why it was not."""
    assert diagnosis.finding.mend is not None
    try:
        diagnosis.finding.mend()
    except (OSError, sqlite3.Error) as error:
        known = store().failure(error)
        return f"not mended: {known.message if known else type(error).__name__}"
    return diagnosis.finding.mending


def _examine_store(place: Home) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    if file_checks.expected_size(place.database) is None:
        return found
    with closing(store_file.open_to_look(place.database)) as connection:
        examination = Examination(place.path, place.database, place.moment, connection)
        contributed = ((check.name, check.check) for app in nexus_apps() for check in app.doctor_checks())
        for name, check in (*STORE_CHECKS.items(), *contributed):
            try:
                found += [Diagnosis(name, finding) for finding in check(examination)]
            except sqlite3.DatabaseError as error:
                known = store().failure(error)
                if known is None or store().is_busy(error):
                    raise
                if known.details["cause"] == "damaged":
                    met = Finding(f"A damaged page ended the check of {name}, and those after it.", row_checks.STOP)
                    return [*found, Diagnosis("integrity", met)]
                met = Finding(f"The check of {name} could not read the store, nor those after it.", known.message)
                return [*found, Diagnosis(name, met)]
    return found


def _prospects(place: Home) -> Finding:
    rows = salvage.readable(place.database)
    held = ", ".join(f"{count} of {table}" for table, count in rows.items() if count)
    backup = file_checks.newest_backup(place)
    if not held:
        return Finding("No row of the store can be read.", f"Only a backup helps.{backup}")
    return Finding(
        f"What can be read: {held}.",
        f"`nexus doctor --salvage FILE` writes those rows into a new store, for `nexus restore FILE`.{backup}",
    )
