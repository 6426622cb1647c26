"""The PostgreSQL server that tests use, by `NEXUS_TEST_SERVER` (postgresql://user@host:port). Without it, SQLite."""

from __future__ import annotations

import os

SERVER = os.environ.get("NEXUS_TEST_SERVER", "")


def url(name: str) -> str:
    """The address of one database there."""
    return f"{SERVER}/{name}"
