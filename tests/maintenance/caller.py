"""Calls on a store that turns bad under a process: `python -m tests.maintenance.caller HOME TROUBLE`.

Prints the envelope of a write, then of a read, as JSON lines, once the trouble has begun.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from nexus.core.database.store import store

NOBODY = 65534


def full_disk(home: Path) -> None:
    """What a small file system does when nothing is left of it."""
    with (home / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            return


def full_store(home: Path) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA page_count")
        cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")


def size_limit(home: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))


def read_only(home: Path) -> None:
    from django.db import connection

    connection.close()
    (home / "nexus.db").chmod(0o444)
    home.chmod(0o555)
    if os.geteuid() == 0:
        os.setuid(NOBODY)  # modes do not bind root


def broken_pages(home: Path) -> None:
    from django.db import connection

    connection.close()
    with (home / "nexus.db").open("r+b") as file:
        for table in ("messages", "events"):
            file.seek(_root(home, table))
            file.write(b"\xa5" * 4096)


def _root(home: Path, table: str) -> int:
    import sqlite3

    with sqlite3.connect(home / "nexus.db") as connection:
        page: int = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    return (page - 1) * 4096


TROUBLES = {trouble.__name__: trouble for trouble in (full_disk, full_store, size_limit, read_only, broken_pages)}


def main(home: Path, trouble: str) -> None:
    os.environ.update(NEXUS_HOME=str(home), DJANGO_SETTINGS_MODULE="nexus_site.settings_agent")
    import django

    django.setup()
    from coordination.toolset import run
    from nexus.core.operations.caller import Caller

    store().prepare()
    calls = (
        (
            "message_create",
            {"project_root": "/", "from_agent_id": "ana", "subject": "s", "body": "b" * 60_000},
        ),
        ("message_status", {"message_id": sys.argv[3]}),
    )
    for name, arguments in calls:
        assert run(Caller(transport="test"), name, arguments)["ok"]
    TROUBLES[trouble](home)
    for name, arguments in calls:
        envelope = run(Caller(transport="test"), name, arguments)
        for _ in range(50):  # until what is free inside the store is used up
            if name == "message_create" and envelope["ok"]:
                envelope = run(Caller(transport="test"), name, arguments)
        print(json.dumps(envelope))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
