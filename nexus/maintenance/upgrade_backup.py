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
from nexus.core.progress import Bar
from nexus.maintenance.backup import back_up, stamp
from nexus.maintenance.store_file import discard_abandoned


def before_migrating() -> None:
    """Back up a store of an earlier version into the home before a migration; only once, even if the migration is
    killed and repeated.

    Raises MIGRATION_ERROR for a store that this version cannot migrate, and the errors of `back_up`. A store on
    PostgreSQL is backed up by whoever upgrades; stderr says so.
    """
    applied = set(MigrationRecorder(connection).applied_migrations())
    begun, own, pending = {app for app, _ in applied}, set(own_labels()), pending_migrations(applied)
    # A command for agents makes a store without the tables of Django's own apps; the first hub only adds them.
    if not begun & own or not any(app in begun | own for app, _ in pending):
        return
    config, stderr = CoreSettings.current(), OutputWrapper(sys.stderr)
    refuse_other_version(config.location, applied)  # `manage.py migrate` comes here first
    if config.database_url is not None:
        stderr.write(
            "[nexus] The store is migrated without a backup: on PostgreSQL pg_dump makes one, before an upgrade."
        )
        return
    backups = config.home / "backups"
    becomes = hashlib.sha256(repr(sorted(shipped_migrations())).encode()).hexdigest()[:8]
    if any(backups.glob(f"*.before-{becomes}.db")):
        return
    backups.mkdir(mode=0o700, exist_ok=True)
    discard_abandoned(backups, f"nexus-*.before-{becomes}.db")  # each as large as the store
    destination = backups / f"nexus-{stamp()}.before-{becomes}.db"
    back_up(config.database, destination, Bar(stderr, "backup"))
    stderr.write(f"[nexus] The store is of an earlier version; before its migration it was backed up to {destination}.")
