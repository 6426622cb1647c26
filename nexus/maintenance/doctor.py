"""The examination of a store: it runs the checks and collects their findings."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError

from nexus.core.apps import nexus_apps
from nexus.core.clock import now
from nexus.core.config import CoreSettings
from nexus.core.contributions import Finding
from nexus.core.database.store import store
from nexus.core.operations.errors import Code, NexusError
from nexus.core.progress import Bar
from nexus.maintenance import checks, store_file
from nexus.maintenance.check_inputs import Examination, FileExamination, Home, ServerExamination

HOME_CHECKS: dict[str, Callable[[Home], Iterator[Finding]]] = {
    "permissions": checks.permissions,
    "leftovers": checks.leftovers,
    "hooks": checks.failing_hooks,
    "imports": checks.imports,
    "ways out": checks.ways_out,
}
FILE_CHECKS: dict[str, Callable[[Home], Iterator[Finding]]] = {
    "disk space": checks.room,
    "file system": checks.network,
    "servers": checks.servers,
    "log": checks.lost_log,
    "log size": checks.log_size,
    "file": checks.header,
}
ROW_CHECKS: dict[str, Callable[[Examination], Iterator[Finding]]] = {
    "version": checks.versions,
    "schema": checks.schema,
    "retention passes": checks.open_passes,
    "clock": checks.clock,
}
SQLITE_CHECKS: dict[str, Callable[[FileExamination], Iterator[Finding]]] = {
    "integrity": checks.integrity,
    "references": checks.references,
    "projects": checks.projects,
}


def check_names(config: CoreSettings) -> list[str]:
    """Return the names of the checks that apply to this store, including those of the apps."""
    ours = (*HOME_CHECKS, *ROW_CHECKS, *(() if config.database_url else left_out()))
    return list(dict.fromkeys([*ours, *(check.name for app in nexus_apps() for check in app.doctor_checks())]))


def left_out() -> list[str]:
    """Return the names of the checks that need an SQLite file."""
    return [*FILE_CHECKS, *SQLITE_CHECKS]


@dataclass(frozen=True)
class Diagnosis:
    """A finding, with the check that made it."""

    check: str
    finding: Finding


def examine(config: CoreSettings, progress: Bar | None = None) -> list[Diagnosis]:
    """Run every check.

    Raises DB_ERROR if there is nothing to examine, or others keep it locked.
    """
    home = Home(config.home, config.database, now())
    if config.database_url is not None:
        return [*_each(HOME_CHECKS, home), *_examine_server(home, config)]
    if not os.path.isfile(home.database):  # noqa: PTH113  # also where its directory is closed to this user
        raise NexusError(Code.DB_ERROR, f"There is no store at {home.database}. Check --home and --db-path.")
    with store_file.explained(f"{home.database} cannot be examined."):
        return [*_each(HOME_CHECKS, home), *_each(FILE_CHECKS, home), *_examine_file(home, progress)]


def examine_machine(config: CoreSettings) -> list[Diagnosis]:
    """Run the checks that need no store. A check that may not read the home finds nothing."""
    found: list[Diagnosis] = []
    for name, check in HOME_CHECKS.items():
        with suppress(OSError):
            found += [Diagnosis(name, finding) for finding in check(Home(config.home, config.database, now()))]
    return found


def _each(checks: Mapping[str, Callable[[Home], Iterator[Finding]]], home: Home) -> list[Diagnosis]:
    return [Diagnosis(name, finding) for name, check in checks.items() for finding in check(home)]


def _contributed() -> list[tuple[str, Callable[[Any], Iterator[Finding]]]]:
    return [(check.name, check.check) for app in nexus_apps() for check in app.doctor_checks()]


def _examine_server(home: Home, config: CoreSettings) -> list[Diagnosis]:
    examination = ServerExamination(home.path, home.database, home.moment)
    try:
        with store().snapshot():
            every = [*ROW_CHECKS.items(), *_contributed()]
            return [Diagnosis(name, finding) for name, check in every for finding in check(examination)]
    except DatabaseError as error:
        known = store().failure(error)
        if known is None:
            raise
        raise NexusError(
            Code.DB_ERROR, f"{config.location} cannot be examined. {known.message}", known.details
        ) from None


def mend(diagnosis: Diagnosis) -> str:
    """Repair a finding as far as that is safe; return what was done, or why it was not."""
    assert diagnosis.finding.mend is not None
    try:
        diagnosis.finding.mend()
    except (OSError, sqlite3.Error, DatabaseError) as error:
        known = store().failure(error)
        return f"not mended: {known.message if known else type(error).__name__}"
    return diagnosis.finding.mending


def _examine_file(home: Home, progress: Bar | None) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    if checks.expected_size(home.database) is None:
        return found
    with closing(store_file.open_to_look(home.database)) as connection:
        examination = FileExamination(home.path, home.database, home.moment, connection, progress)
        for name, check in (*ROW_CHECKS.items(), *SQLITE_CHECKS.items(), *_contributed()):
            try:
                with store_file.reporting(connection, progress, name):
                    found += [Diagnosis(name, finding) for finding in check(examination)]
            except sqlite3.DatabaseError as error:
                known = store().failure(error)
                if known is None or store().is_busy(error):
                    raise
                if known.details["cause"] == "damaged":
                    problem = f"A damaged page ended the check of {name}, and those after it."
                    return [*found, Diagnosis("integrity", Finding(problem, checks.what_helps(home)))]
                met = Finding(f"The check of {name} could not read the store, nor those after it.", known.message)
                return [*found, Diagnosis(name, met)]
    return found
