"""Which migrations of Nexus's own apps there are, and which a store has."""

from __future__ import annotations

from pathlib import Path

from django.apps import apps
from django.db import connection

from nexus.core.apps import own_labels
from nexus.core.operations.errors import Code, NexusError


def shipped_migrations() -> set[tuple[str, str]]:
    """(app, name) of every migration of this version, from the file names: nothing is imported."""
    return {
        (config.label, path.stem)
        for config in apps.get_app_configs()
        for path in Path(config.path, "migrations").glob("[0-9]*.py")
    }


def schema_version() -> int:
    """How many migrations of Nexus's own apps are applied: rises by one with each."""
    labels = own_labels()
    with connection.cursor() as cursor:
        marks = ", ".join(["%s"] * len(labels))
        cursor.execute(f"SELECT count(*) FROM django_migrations WHERE app IN ({marks})", labels)  # noqa: S608
        return int(cursor.fetchone()[0])


def refuse_newer(where: object, applied: set[tuple[str, str]]) -> None:
    """Raises MIGRATION_ERROR when a store has steps of Nexus's own apps that this version does not know."""
    own = set(own_labels())
    if newer := {row for row in applied - shipped_migrations() if row[0] in own}:
        raise NexusError(
            Code.MIGRATION_ERROR,
            f"The store at {where} was written by a newer version. Upgrade Nexus or choose another store.",
            {"unknown_migrations": sorted(".".join(row) for row in newer)},
        )
