"""The backup that a store of an earlier version gets before its migration."""

from __future__ import annotations

import hashlib
import sys

from django.core.management.base import OutputWrapper
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from nexus.core.apps import own_labels
from nexus.core.config import CoreSettings
from nexus.core.database.migrations import pending_migrations, refuse_other_version, shipped_migrations
from nexus.core.operations.errors import NexusError
from nexus.core.progress import Bar
from nexus.maintenance.backup import back_up, stamp
from nexus.maintenance.store_file import discard_abandoned


def before_migrating() -> None:
    """Back up a store of an earlier version into the home before a migration; only once, even if the migration is
    killed and repeated.

    Raises MIGRATION_ERROR for a store that this version cannot migrate, and the errors of `back_up`. Without
    PostgreSQL's programs it says on stderr that there is no backup, and goes on.
    """
    applied = set(MigrationRecorder(connection).applied_migrations())
    if not any(app in own_labels() for app, _ in applied) or not pending_migrations(applied):
        return
    config, stderr = CoreSettings.current(), OutputWrapper(sys.stderr)
    refuse_other_version(config.location, applied)  # `manage.py migrate` comes here first
    backups, suffix = config.home / "backups", "db" if config.database_url is None else "dump"
    becomes = hashlib.sha256(repr(sorted(shipped_migrations())).encode()).hexdigest()[:8]
    if any(backups.glob(f"*.before-{becomes}.{suffix}")):
        return
    backups.mkdir(mode=0o700, exist_ok=True)
    discard_abandoned(backups, f"nexus-*.before-{becomes}.{suffix}")  # each as large as the store
    destination = backups / f"nexus-{stamp()}.before-{becomes}.{suffix}"
    try:
        if config.database_url is None:
            back_up(config.database, destination, Bar(stderr, "backup"))
        else:
            from nexus.maintenance import dump  # here: a SQLite store needs no psycopg

            dump.back_up(destination)
    except NexusError as error:
        if error.details.get("cause") not in ("missing_program", "old_program"):
            raise
        stderr.write(f"[nexus] The store is migrated without a backup. {error.message}")
    else:
        stderr.write(
            f"[nexus] The store is of an earlier version; before its migration it was backed up to {destination}."
        )
